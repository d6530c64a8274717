package upstream

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/opconfig"
)

// Declared are the declarations and adapters of this project for AIter's operators.
type Declared struct {
	Config *opconfig.Config
	Files  fs.FS // the tree with the configuration and the adapters
}

// noTorchTypes is AIter's flag for code without PyTorch's tensors.
const noTorchTypes = "-DAITER_NO_TORCH_TYPES=1"

// Standins returns the stand-ins of the declarations: the include folders in their tree, and the flags that select branches in AIter's
// sources.
func (d Declared) Standins() Standins {
	s := Standins{Files: d.Files, Flags: []string{noTorchTypes}}
	for _, m := range d.Config.Modules {
		for _, dir := range m.Include {
			if fs.ValidPath(dir) && !slices.Contains(s.Include, dir) && !slices.Contains(keysOf(m.Outside), dir) {
				s.Include = append(s.Include, dir)
			}
		}
		for _, flag := range slices.Concat(m.Flags.Common, m.Flags.HIP) {
			if name, _, _ := strings.Cut(flag, "="); strings.HasPrefix(name, "-DENABLE_") || strings.HasPrefix(name, "-DAITER_") ||
				strings.HasPrefix(name, "-DUSE_") {
				s.Flags = append(s.Flags, flag)
			}
		}
	}
	return s
}

func keysOf[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// adapters are the files of a declared module.
type adapters struct {
	files   []string        // of this project
	words   map[string]bool // the identifiers in them
	sources []string        // files of the checkout that they include, without headers, which several modules may share
}

// adaptersOf follows the sources of a declared module up to the files of the checkout.
func (c *Checkout) adaptersOf(d Declared, m *opconfig.Module) adapters {
	a := adapters{words: map[string]bool{}}
	var stack []string
	for _, s := range m.Sources {
		stack = append(stack, s.Files...)
	}
	standins := d.Standins()
	known := macrosOf(standins.Flags)
	for len(stack) > 0 && len(a.files) < maxFiles {
		file := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if slices.Contains(a.files, file) {
			continue
		}
		data, err := fs.ReadFile(d.Files, file)
		if err != nil {
			continue // a file of an include folder; the build reports it
		}
		a.files = append(a.files, file)
		for _, t := range scanAll(newCScanner(string(data))) {
			if t.kind == nameToken {
				a.words[t.text] = true
			}
		}
		for _, inc := range includes(string(data), known) {
			if name := path.Join(path.Dir(file), inc.name); fs.ValidPath(name) && exists(d.Files, name) {
				stack = append(stack, name)
				continue
			}
			for _, dir := range []string{"csrc/include", "csrc"} {
				if name := path.Join(dir, inc.name); fs.ValidPath(name) && c.has(name) && path.Ext(name) != ".h" {
					a.sources = append(a.sources, name)
					break
				}
			}
		}
	}
	return a
}

func exists(files fs.FS, name string) bool {
	_, err := fs.Stat(files, name)
	return err == nil
}

// State tells whether a module of AIter is used, or can be built.
type State string

// The states.
const (
	In       State = "in"       // declared modules have operators of it
	Possible State = "possible" // no reason is known why it cannot be built
	Out      State = "out"      // it cannot be built; Status.Reasons tells why
)

// Status is a module of AIter with its state.
type Status struct {
	*Module
	State    State
	Declared []string // the modules of this project that include its sources
	Reasons  []Reason // a module with the state In may have some too: they may concern functions that are not declared
	Needs    []string // header libraries that the sources include: rocPRIM, hipCUB
}

// users lists the declared modules that include sources of each module of AIter. A source that several modules of AIter have counts for
// those of which the declared module lacks the fewest sources.
func (c *Checkout) users(d Declared) map[string][]string {
	all := map[string][]string{}
	for _, declared := range d.Config.Modules {
		included := c.adaptersOf(d, declared).sources
		lacks := func(m *Module) (n int) {
			for _, file := range m.Sources {
				if !slices.Contains(included, file) {
					n++
				}
			}
			return n
		}
		for _, file := range included {
			fewest := -1
			for _, m := range c.Modules {
				if n := lacks(m); slices.Contains(m.Sources, file) && (fewest < 0 || n < fewest) {
					fewest = n
				}
			}
			for _, m := range c.Modules {
				if slices.Contains(m.Sources, file) && lacks(m) == fewest && !slices.Contains(all[m.Name], declared.Name) {
					all[m.Name] = append(all[m.Name], declared.Name)
				}
			}
		}
	}
	return all
}

// Status returns the state of each module, in the order of AIter's configuration.
func (c *Checkout) Status(d Declared) []Status {
	users := c.users(d)
	standins := d.Standins()
	var list []Status
	for _, m := range c.Modules {
		s := Status{Module: m, State: Possible}
		s.Reasons, s.Needs = c.reasons(m, standins)
		s.Declared = users[m.Name]
		slices.Sort(s.Declared)
		switch {
		case len(s.Declared) > 0:
			s.State = In
		case len(s.Reasons) > 0:
			s.State = Out
		}
		list = append(list, s)
	}
	return list
}

// Words returns the state in words: "in: module_aiter_rmsnorm", "possible", "possible, with rocPRIM", or the kinds of reasons.
func (s Status) Words() string {
	switch s.State {
	case In:
		return "in: " + strings.Join(s.Declared, ", ")
	case Possible:
		if len(s.Needs) > 0 {
			return string(Possible) + ", with " + strings.Join(s.Needs, " and ")
		}
		return string(Possible)
	}
	var kinds []string
	for _, r := range s.Reasons {
		kind := r.What
		if kind == missingSource || kind == missingHeader {
			kind = r.String()
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return strings.Join(kinds, ", ")
}
