package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/aiter-go/aiter"
	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/opconfig"
)

// ModuleConfig is one of the two paths that the configuration of a [Source] may have. The other one is [DefaultConfig].
const ModuleConfig = "opt_compiler.toml"

// Source is a tree of modules with their configuration, config/opt_compiler.toml or opt_compiler.toml.
type Source struct {
	// Files is the tree. If it is an [os.DirFS], its files may change, and are read in the folder. Any other tree, such as an
	// [embed.FS], must not change; it is written to the cache before the first compile.
	Files fs.FS
	// Name names the source in errors; default: the folder, else its position in the list.
	Name string
}

// folder returns the folder of a source, "" if its tree is not an [os.DirFS].
func (s Source) folder() string {
	if v := reflect.ValueOf(s.Files); s.Files != nil && v.Type() == reflect.TypeOf(os.DirFS("")) {
		return v.String()
	}
	return ""
}

// source is a Source with its configuration.
type source struct {
	Source
	dir    string // folder on disk, "" if there is none
	config *opconfig.Config
	root   bool // named by the user of the program; see sources
}

// complete reports whether the source replaces the modules of aiter, because it has the support library or "builtin = false".
func (s *source) complete() bool { return s.config.Has(SupportModule) || s.config.NoBuiltin }

// supports reports whether the source has the support library. Such a source has the headers of aiter too.
func (s *source) supports() bool { return s.config.Has(SupportModule) }

// replaces reports whether the source declares all modules of another one.
func (s *source) replaces(o *source) bool {
	return !slices.ContainsFunc(o.config.Modules, func(m *opconfig.Module) bool { return !s.config.Has(m.Name) })
}

// sources are the sources of a manager. The first one has the support library, and the modules of all others use its headers.
// If no source has the support library, the first one is complete without it.
type sources []*source

// readSources reads all configurations: that of the program, those of Settings.Sources, and those of Settings.Roots. A complete source
// replaces the one in the program. A root that declares all modules of an embedded source replaces that source, so that a user can
// edit the sources that a program contains. The error joins those of [opconfig.Load] for all configurations.
func (s Settings) readSources() (sources, error) {
	var roots, embedded sources
	var errs []error
	for _, dir := range s.SourceRoots() {
		x, err := s.read(Source{Files: os.DirFS(dir), Name: dir}, s.Config)
		errs = append(errs, err)
		if x != nil {
			x.root = true
			roots = append(roots, x)
		}
	}
	list, err := s.allSources()
	errs = append(errs, err)
	for i, from := range list {
		from.Name = cmp.Or(from.Name, from.folder(), fmt.Sprintf("Modules[%d]", i))
		x, err := s.read(from, "")
		errs = append(errs, err)
		if x != nil {
			embedded = append(embedded, x)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(slices.Concat(embedded, roots), func(x *source) bool {
		return !x.root && slices.ContainsFunc(roots, func(r *source) bool { return r.replaces(x) })
	})
	i := slices.IndexFunc(all, (*source).supports)
	if i < 0 {
		i = slices.IndexFunc(all, (*source).complete)
	}
	if i >= 0 {
		return slices.Concat(sources{all[i]}, all[:i], all[i+1:]), nil
	}
	program, err := s.readProgram(len(roots) == 0)
	if err != nil {
		return nil, err
	}
	return slices.Insert(all, 0, program), nil
}

// CheckoutVariable is the environment variable with the absolute path of a checkout of AMD's AIter. If it is set, the operators that are
// built from the checkout are one more source.
const CheckoutVariable = "AITER_CHECKOUT"

// upstreamDir is the folder in [aiter.Sources] with the declarations and adapters of AIter's operators.
const upstreamDir = "csrc/upstream"

// allSources returns Settings.Sources, and the source for a checkout of AIter if the variable is set. The checkout need not exist,
// because prebuilt libraries do not need it. The error is an *EnvironmentError.
func (s Settings) allSources() ([]Source, error) {
	dir := s.env(CheckoutVariable)
	if dir == "" {
		return s.Sources, nil
	}
	if !filepath.IsAbs(dir) {
		return nil, &EnvironmentError{CheckoutVariable, dir, errors.New("expected an absolute path of a checkout of AIter (Options.AIter)")}
	}
	files, err := Upstream()
	if err != nil {
		return nil, err
	}
	return append(slices.Clip(s.Sources), Source{Files: files, Name: "AIter of " + CheckoutVariable}), nil
}

// Upstream returns the tree, which the program contains, with the declarations and adapters of AIter's operators.
func Upstream() (fs.FS, error) { return fs.Sub(aiter.Sources, upstreamDir) }

// readProgram reads the source in the program. If configured is true, [Settings.Config] may name its configuration.
func (s Settings) readProgram(configured bool) (*source, error) {
	path := DefaultConfig
	if configured {
		path = cmp.Or(s.Config, path)
	}
	program, err := s.read(Source{Files: aiter.Sources}, path)
	if err == nil && s.NoBuiltin {
		program.config, err = program.config.Only(SupportModule)
	}
	return program, err
}

// read reads the configuration of one source. path is the path of the configuration, "" for one of the usual paths.
func (s Settings) read(from Source, path string) (x *source, err error) {
	x = &source{Source: from, dir: from.folder()}
	if x.Files == nil {
		return nil, &opconfig.Error{Source: from.Name, File: ModuleConfig, Msg: "the source has no Files; set it to an embed.FS or os.DirFS(dir)"}
	}
	if path == "" {
		if path, err = configIn(x.Files, from.Name); err != nil {
			return nil, err
		}
	}
	x.config, err = opconfig.Load(x.Files, path, opconfig.Options{Source: from.Name, Env: func(name string) (string, bool) {
		v := s.env(name)
		return v, v != ""
	}})
	if err != nil {
		return nil, err
	}
	return x, nil
}

// configIn returns the path of the configuration in a tree.
func configIn(files fs.FS, source string) (string, error) {
	var found []string
	for _, path := range []string{DefaultConfig, ModuleConfig} {
		if _, err := fs.Stat(files, path); err == nil {
			found = append(found, path)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 2:
		return "", &opconfig.Error{Source: source, File: ModuleConfig, Msg: "the folder has two configurations, this one and " +
			DefaultConfig + "; remove one, or name the other one with --config or AITER_CONFIG"}
	}
	return "", &opconfig.Error{Source: source, File: DefaultConfig, Msg: "the source folder " + source +
		" has no configuration, neither this file nor " +
		ModuleConfig + "; write one of them, or name another file with --config or AITER_CONFIG"}
}

// join returns all configurations as one. It adds the include folders of the first source, below [opconfig.Mount], to the modules of
// all other sources.
func (all sources) join() (*opconfig.Config, error) {
	var headers []string
	if support, err := all[0].config.Module(SupportModule); err == nil {
		for _, dir := range support.Include {
			headers = append(headers, opconfig.Mount+"/"+dir)
		}
	}
	var configs []*opconfig.Config
	for i, x := range all {
		if i > 0 {
			x.config.AddInclude(headers...)
		}
		configs = append(configs, x.config)
	}
	if len(configs) == 1 {
		return configs[0], nil
	}
	return opconfig.Join(configs...)
}

// trees opens the source trees.
func (all sources) trees(store *cache.Dir, memo *filehash.Memo) ([]deps.Tree, error) {
	var trees []deps.Tree
	for i, x := range all {
		tree, err := x.open(store, memo)
		if err == nil && i > 0 {
			tree, err = deps.NewMountedTree(tree, opconfig.Mount, trees[0])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", cmp.Or(x.Name, opconfig.BuiltinName), err)
		}
		trees = append(trees, tree)
	}
	return trees, nil
}

func (x *source) open(store *cache.Dir, memo *filehash.Memo) (deps.Tree, error) {
	if x.dir != "" {
		return deps.NewDirTree(x.dir, memo)
	}
	return deps.NewEmbeddedTree(x.Files, store), nil
}

// SourceRoots returns the folders with sources that the user of the program names.
func (s Settings) SourceRoots() []string {
	if len(s.Roots) > 0 {
		return s.Roots
	}
	return SplitPath(s.env("AITER_META_DIR"))
}

// Folders returns the folders with sources: those that the user of the program names, and those in Settings.Sources. Their files may
// change.
func (s Settings) Folders() []string {
	dirs := slices.Clone(s.SourceRoots())
	for _, x := range s.Sources {
		if dir := x.folder(); dir != "" {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// HasFolder reports whether some sources are in a folder, where they may change.
func (s Settings) HasFolder() bool { return len(s.Folders()) > 0 }

// ConfigPath returns the slash-separated path of the configuration in the only root, or in the program if there is no root; "" for one
// of the usual paths. It makes an absolute path inside the root relative. If the settings name a path and several roots, the error is a
// *ConfigPathError, because each root has its own configuration.
func (s Settings) ConfigPath() (string, error) {
	path, roots := cmp.Or(s.Config, s.env("AITER_CONFIG")), s.SourceRoots()
	if path == "" || len(roots) == 0 {
		return filepath.ToSlash(path), nil
	}
	if len(roots) > 1 {
		return "", &ConfigPathError{path, roots}
	}
	if root, err := filepath.Abs(roots[0]); err == nil && filepath.IsAbs(path) {
		if rel, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(rel) {
			path = rel
		}
	}
	return filepath.ToSlash(path), nil
}

// ConfigPathError reports a path of the configuration that is given together with several roots.
type ConfigPathError struct {
	Path  string
	Roots []string
}

func (e *ConfigPathError) Error() string {
	return fmt.Sprintf("the configuration %s (an argument, --config or AITER_CONFIG) is for one source folder, but %d are given: %q; "+
		"give only its folder, or leave the configuration out: each folder has its own %s or %s",
		e.Path, len(e.Roots), e.Roots, DefaultConfig, ModuleConfig)
}

// LoadConfig reads the configurations of all sources and joins them. The errors are those of
// [opconfig.Load] and [opconfig.Join].
func (s Settings) LoadConfig() (*opconfig.Config, error) {
	all, err := s.loadSources()
	if err != nil {
		return nil, err
	}
	return all.join()
}

// loadSources resolves the path of the configuration and reads the sources.
func (s Settings) loadSources() (all sources, err error) {
	if s.Config, err = s.ConfigPath(); err != nil {
		return nil, err
	}
	return s.readSources()
}
