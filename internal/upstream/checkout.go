package upstream

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// configFile is the path of AIter's list of modules in a checkout.
const configFile = "aiter/jit/optCompilerConfig.json"

// Checkout is a checkout of AIter.
type Checkout struct {
	Dir     string // as given to Open
	Commit  string // hexadecimal, "" if the folder has no Git data
	Modules []*Module

	files fs.FS
	root  *os.Root
	texts map[string]string // contents of the files that were read, by path
}

// Close releases the folder.
func (c *Checkout) Close() error { return c.root.Close() }

// NotACheckoutError reports a folder without AIter's list of modules.
type NotACheckoutError struct {
	Dir string
	Err error
}

func (e *NotACheckoutError) Error() string {
	return fmt.Sprintf("%s is not a checkout of AIter (github.com/ROCm/aiter): %v", e.Dir, e.Err)
}

func (e *NotACheckoutError) Unwrap() error { return e.Err }

// Open reads the modules and operators of a checkout. The error is a *NotACheckoutError, or joins an *Error for each mistake.
func Open(dir string) (*Checkout, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, &NotACheckoutError{dir, err}
	}
	c, err := read(root.FS())
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && !isError(err) {
			err = &NotACheckoutError{dir, err}
		}
		return nil, errors.Join(err, root.Close())
	}
	c.Dir, c.Commit, c.root = dir, commitOf(dir), root
	return c, nil
}

// isError reports whether err is or wraps an [*Error].
func isError(err error) bool {
	var e *Error
	return errors.As(err, &e)
}

// read reads the modules and operators of a tree.
func read(files fs.FS) (*Checkout, error) {
	c := &Checkout{files: files, texts: map[string]string{}}
	text, err := c.text(configFile)
	if err != nil {
		return nil, err
	}
	var errs []error
	c.Modules, err = c.readConfig(text)
	errs = append(errs, err)
	ops, err := c.readOperators()
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	byName := map[string]*Module{}
	for _, m := range c.Modules {
		byName[m.Name] = m
	}
	for _, op := range ops {
		if m := byName[op.Module]; m != nil {
			m.Operators = append(m.Operators, op)
		}
	}
	return c, nil
}

// text returns the content of a file. The error of a file that is too large or not regular is an [*Error].
func (c *Checkout) text(file string) (string, error) {
	if text, ok := c.texts[file]; ok {
		return text, nil
	}
	f, err := c.files.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", &Error{file, 0, fmt.Sprintf("not a regular file (%s)", info.Mode())}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxFile {
		return "", &Error{file, 0, fmt.Sprintf("more than %d bytes", maxFile)}
	}
	c.texts[file] = string(data)
	return c.texts[file], nil
}

// has reports whether the checkout has a regular file with that path.
func (c *Checkout) has(file string) bool {
	if _, ok := c.texts[file]; ok {
		return true
	}
	info, err := fs.Stat(c.files, file)
	return err == nil && info.Mode().IsRegular()
}

// readOperators returns the stubs of all Python files below aiter/, in the order of their paths.
func (c *Checkout) readOperators() ([]Operator, error) {
	var all []Operator
	var errs []error
	n := 0
	err := fs.WalkDir(c.files, "aiter", func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if n++; n > maxFiles {
			return &Error{"aiter", 0, fmt.Sprintf("more than %d files", maxFiles)}
		}
		if !e.Type().IsRegular() || path.Ext(file) != ".py" {
			return nil
		}
		text, err := c.text(file)
		if err != nil {
			return err
		}
		if !strings.Contains(text, decorator) {
			delete(c.texts, file)
		}
		ops, err := readStubs(file, text)
		errs = append(errs, err)
		all = append(all, ops...)
		return nil
	})
	return all, errors.Join(append(errs, err)...)
}

// Module returns a module, nil if there is none with the name.
func (c *Checkout) Module(name string) *Module {
	if i := slices.IndexFunc(c.Modules, func(m *Module) bool { return m.Name == name }); i >= 0 {
		return c.Modules[i]
	}
	return nil
}

// commitOf returns the commit of the working tree, "" if it is unknown.
func commitOf(dir string) string {
	git := filepath.Join(dir, ".git")
	if text := shortFile(git); strings.HasPrefix(text, "gitdir: ") { // a worktree
		git = strings.TrimPrefix(text, "gitdir: ")
		if !filepath.IsAbs(git) {
			git = filepath.Join(dir, git)
		}
	}
	head := shortFile(filepath.Join(git, "HEAD"))
	ref, isRef := strings.CutPrefix(head, "ref: ")
	if !isRef {
		return hash(head)
	}
	common := git
	if rel := shortFile(filepath.Join(git, "commondir")); rel != "" {
		common = filepath.Join(git, rel)
	}
	if !filepath.IsLocal(ref) {
		return ""
	}
	packed := ""
	for line := range strings.Lines(shortFile(filepath.Join(common, "packed-refs"))) {
		if id, name, _ := strings.Cut(strings.TrimSpace(line), " "); name == ref {
			packed = id
		}
	}
	return hash(cmp.Or(shortFile(filepath.Join(common, ref)), packed))
}

// hash returns s if it is a commit, else "".
func hash(s string) string {
	if len(s) != 40 || strings.Trim(s, "0123456789abcdef") != "" {
		return ""
	}
	return s
}

// shortFile returns the trimmed text of a file of Git, "" if it cannot be read.
func shortFile(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
