package opconfig

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Options are the options of [Load].
type Options struct {
	// Env looks up a variable for ${NAME}, as os.LookupEnv does. nil: no variable is set.
	Env func(name string) (value string, ok bool)
	// Source is the name of the root in errors and positions, such as its folder on disk. "": the sources in the program.
	Source string
}

// Load reads the TOML file at path and those that it includes. fsys is the project's root, which
// contains sources and include folders; Load reads nothing outside of it. The error joins one
// *Error for each mistake, in file order; use errors.As for the first, or Unwrap() []error for
// all. The limits in the package comment bound time and memory for all files.
func Load(fsys fs.FS, path string, opts Options) (*Config, error) {
	l := &loader{
		fsys: &countedFS{FS: fsys, left: maxEntries},
		env:  opts.Env,
		cfg: &Config{
			Source: opts.Source,
			Sums:   map[string]string{}, Globs: map[string][]string{},
			modules: map[string]*Module{}, ops: map[string]opRef{},
		},
		exists: map[string]fs.FileMode{},
	}
	if err := l.file(path); err != nil {
		l.mistakes = append(l.mistakes, &Error{File: path, Msg: err.Error(), cause: err})
	}
	if len(l.cfg.Modules) == 0 && len(l.mistakes) == 0 {
		l.mistakes = append(l.mistakes, &Error{File: path, Line: 1, Col: 1, Msg: "no module is defined; write a [module.module_NAME]"})
	}
	if len(l.mistakes) > 0 {
		return nil, l.joined()
	}
	return l.cfg, nil
}

type loader struct {
	fsys     *countedFS
	env      func(string) (string, bool)
	cfg      *Config
	mistakes []*Error
	chain    []string               // files being read, the including ones first
	exists   map[string]fs.FileMode // path -> mode; see mode

	bytes, values, expanded, inherited int // of all files, as the limits count them
}

// joined returns all mistakes as one error, sorted by file and position.
func (l *loader) joined() error {
	slices.SortStableFunc(l.mistakes, func(a, b *Error) int {
		return cmp.Or(
			cmp.Compare(slices.Index(l.cfg.Files, a.File), slices.Index(l.cfg.Files, b.File)),
			cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	if l.full() {
		last := *l.mistakes[len(l.mistakes)-1]
		last.Msg, last.Suggestion, last.cause = fmt.Sprintf("reading stopped after %d mistakes; correct these first", maxMistakes), "", nil
		l.mistakes = append(l.mistakes, &last)
	}
	errs := make([]error, len(l.mistakes))
	for i, p := range l.mistakes {
		p.Source = l.cfg.Source
		errs[i] = p
	}
	return errors.Join(errs...)
}

// file reads one TOML file. Mistakes in it go to l.mistakes; the error reports an unreadable
// file.
func (l *loader) file(name string) error {
	if slices.Contains(l.cfg.Files, name) {
		return nil
	}
	if len(l.cfg.Files) == maxFiles {
		return fmt.Errorf("more than %d files", maxFiles)
	}
	text, err := readFile(l.fsys, name, maxBytes-l.bytes)
	if err != nil {
		return err
	}
	l.bytes += len(text)
	l.cfg.Files = append(l.cfg.Files, name)
	sum := sha256.Sum256([]byte(text))
	l.cfg.Sums[name] = hex.EncodeToString(sum[:])
	l.chain = append(l.chain, name)
	defer func() { l.chain = l.chain[:len(l.chain)-1] }()
	d := &decoder{loader: l, doc: &document{source: l.cfg.Source, file: name, src: strings.TrimPrefix(text, "\ufeff")}}
	if root := d.parse(); root != nil {
		d.config(root)
	}
	return nil
}

func readFile(fsys fs.FS, name string, limit int) (string, error) {
	if info, err := fs.Stat(fsys, name); err != nil {
		return "", err
	} else if !info.Mode().IsRegular() { // opening a pipe would wait for a writer
		return "", fmt.Errorf("not a regular file (%s)", info.Mode())
	}
	f, err := fsys.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return "", err
	}
	if len(text) > limit {
		return "", fmt.Errorf("the configuration is larger than %d bytes, all its files together", maxBytes)
	}
	return string(text), nil
}

// config reads a whole file. It reads the defaults first, because the modules need them, then the
// included files, so that the file's own modules follow theirs.
func (d *decoder) config(root *node) {
	if n := root.fields["defaults"]; n != nil {
		d.defaults(n)
	}
	if inc := root.fields["include"]; inc != nil {
		d.strings(inc, "include", d.includeFile)
	}
	d.table(root, "the file", map[string]func(*node){
		"include":  func(*node) {},
		"defaults": func(*node) {},
		"builtin":  d.builtin,
		"module":   d.modules,
	})
}

// builtin reads the key "builtin", which is false in a file that leaves out the modules of aiter.
func (d *decoder) builtin(n *node) {
	if first := d.chain[0]; d.doc.file != first {
		d.fail(n.key, "builtin is in an included file; it applies to all modules, so write it in %s", first)
		return
	}
	d.bool(n, "builtin")
	d.cfg.NoBuiltin = n.value == false
}

// includeFile reads the files that an include names, relative to the including one.
func (d *decoder) includeFile(pattern string, n *node) {
	full, reason := rootPath(path.Join(path.Dir(d.doc.file), pattern))
	if reason == "" && path.IsAbs(pattern) {
		reason = "is absolute; write it relative to this file"
	}
	if reason != "" {
		d.fail(n.at, "include %q %s", pattern, reason)
		return
	}
	for _, f := range d.files(full, "include", n) {
		if d.full() {
			return
		}
		if f == d.doc.file && hasMeta(pattern) {
			continue // a glob matches the file that contains it
		}
		if i := slices.Index(d.chain, f); i >= 0 {
			cycle := append(slices.Clone(d.chain[i:]), f)
			d.fail(n.at, "include cycle: %s", strings.Join(cycle, " -> "))
			continue
		}
		if err := d.file(f); err != nil {
			d.add(n.at, &Error{Msg: fmt.Sprintf("cannot read %s: %v", f, err), cause: err})
		}
	}
}
