package opconfig

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/jit/schema"
)

// Config is the content of all configuration files. It does not change after Load.
type Config struct {
	Modules []*Module // in file order, those of included files first
	Files   []string  // every TOML file read, relative to the root, Load's first

	Sums  map[string]string   // file of Files -> SHA-256 in hex of the text that was read
	Globs map[string][]string // pattern of sources or included files, relative to the root -> its matches

	Source string // of [Options]

	Variables []string // the environment variables that the files name, set or not

	// NoBuiltin is true if the first file has "builtin = false": its modules replace those of aiter.
	NoBuiltin bool

	modules  map[string]*Module
	ops      map[string]opRef
	defaults Module    // the keys of [defaults]
	joined   []*Config // of [Join]
}

type opRef struct {
	module *Module
	index  int
}

// Module is a set of sources that are linked into one artifact. Its fields include the defaults
// that it inherits.
type Module struct {
	Name      string
	Doc       string   // "" when not given
	Include   []string // folders for the compiler: relative to the root, or keys of Outside
	Sources   []Source
	Flags     FlagSet
	LinkFlags FlagSet
	Targets   []string // vendors ("hip") or patterns ("gfx9*"); empty: all targets with sources
	Axes      []Axis   // the inherited ones first
	Ops       []Op
	Timeout   time.Duration // for one compilation; 0 is the default
	// Outside maps the include folders outside of the source tree, as configured, to folders on disk.
	Outside  map[string]OutsideFolder
	Assembly *Assembly // nil: none
	Pos      Position

	listed map[string][]int // positions of the sources that list an operator, by its name
}

// OutsideFolder is an include folder outside of the source tree, such as "${CK_DIR}/include".
type OutsideFolder struct {
	Dir   string // absolute and clean; "" if Unset
	Unset string // the variable in the path that is not set; "" if there is none
}

// Op is an operator that a module exports.
type Op struct {
	Name   string
	Doc    string
	Schema schema.Schema // its Name is that of the operator
	// Tolerance maps written arguments to tolerances. Other arguments have the tolerance of
	// their type.
	Tolerance map[string]Tolerance
	Args      map[string]Argument // by name; an argument may be missing
	// Split lists the axes along which a call may be split into calls that give the same results, preferred ones first. An axis
	// has names of sizes that are split together, in the same proportion. The name "..." is the first of the leading dimensions.
	Split [][]string
	// Tune lists the launch parameters.
	Tune []LaunchParam
	// Python is what AIter's Python does besides the call of the function that the operator adapts: "allocates out". It is
	// "nothing" if it only calls the function, and "" for an operator of another origin.
	Python string
	Pos    Position
}

// Source is one [[source]] of a module.
type Source struct {
	Path  string   // as configured, with variables replaced: a path or a glob
	Files []string // the files that Path names, relative to the root, sorted
	Ops   []string // the operators in it; empty: those that no source of the module lists
	Axes  []string // the axes on which its code depends; nil: all whose arguments its operators have
	Flags FlagSet  // added to the module's
	When  When
	Pos   Position
}

// FlagSet has flags by the targets for which they are used. Every flag is one argument of a command.
type FlagSet struct {
	Common, HIP, CUDA, CPU []string
	Arch                   map[string][]string // by pattern: "gfx9*", "sm_90a", "gfx90a:xnack+"
	Optional               *FlagSet            // flags of compilers that accept them; nil: none; has no Optional of its own
}

// When is the condition under which a source is used. An empty field allows everything.
type When struct {
	Vendor    []string // any of hip, cuda, cpu
	Arch      []string // any of these patterns
	Toolchain string   // all of these comparisons: ">=6.0,<8"
	// Axis maps axes to some of their values. Parts with another value of the axis are built without the source.
	Axis map[string][]string
}

// Position is a position in a TOML file.
type Position struct {
	Source    string // of [Options]
	File      string // relative to the root
	Line, Col int    // from 1; columns count characters
}

// String returns "file:line:column", with the source before the file.
func (p Position) String() string {
	return fmt.Sprintf("%s:%d:%d", path.Join(p.Source, p.File), p.Line, p.Col)
}

// Module returns the module called name, or an *UnknownModuleError.
func (c *Config) Module(name string) (*Module, error) {
	if m := c.modules[name]; m != nil {
		return m, nil
	}
	e := &UnknownModuleError{Name: name, Nearest: spelling.Nearest(name, keys(c.modules)), Known: keys(c.modules)}
	if ref, ok := c.ops[name]; ok {
		e.OperatorOf = ref.module.Name
	}
	return nil, e
}

// Has reports whether the configuration declares the module.
func (c *Config) Has(module string) bool { return c.modules[module] != nil }

// Op returns the operator called name and the module that holds it, or an
// *UnknownOpError.
func (c *Config) Op(name string) (*Module, *Op, error) {
	ref, ok := c.ops[name]
	if !ok {
		return nil, nil, c.unknownOp(name)
	}
	return ref.module, &ref.module.Ops[ref.index], nil
}

func (c *Config) unknownOp(name string) error {
	e := &UnknownOpError{Name: name, Nearest: spelling.Nearest(name, keys(c.ops)), Known: keys(c.ops)}
	if m := c.modules[name]; m != nil {
		e.Operators = m.opNames()
	}
	return e
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
