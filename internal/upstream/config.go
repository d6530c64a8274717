package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Module is an entry of AIter's configuration. Paths are relative to the checkout.
type Module struct {
	Name        string
	Sources     []string // files; those of listed folders too
	Missing     []string // listed sources that the checkout does not have, or that are outside of it
	Include     []string // extra_include
	Flags       []Flag   // flags_extra_hip
	SourceFlags []SourceFlags
	Generators  []string // commands that make sources: the script and its arguments
	Libraries   []string // third_party
	Operators   []Operator
}

// Flag is a flag for the HIP compiler.
type Flag struct {
	Text    string // as AIter writes it, words separated by spaces
	Unknown bool   // it depends on the machine; Text is the Python expression
}

// SourceFlags are flags for the sources whose names match a pattern.
type SourceFlags struct {
	Pattern string   `json:"pattern"`
	Flags   []string `json:"flags"`
}

// folders returns the paths that AIter's expressions use, by their names in Python. Composable Kernel is a submodule.
func folders() names {
	return names{
		"AITER_META_DIR": ".", "AITER_ROOT_DIR": ".", "AITER_CSRC_DIR": "csrc", "AITER_GRADLIB_DIR": "gradlib", "CK_DIR": ckFolder,
	}
}

const ckFolder = "3rdparty/composable_kernel"

// readConfig reads the JSON text: an object of modules, whose values are Python expressions in strings.
func (c *Checkout) readConfig(text string) ([]*Module, error) {
	fail := func(format string, args ...any) error { return &Error{configFile, 0, fmt.Sprintf(format, args...)} }
	dec := json.NewDecoder(strings.NewReader(text))
	if t, err := dec.Token(); err != nil {
		return nil, fail("expected a JSON object of modules: %v", err)
	} else if t != json.Delim('{') {
		return nil, fail("expected a JSON object of modules, got %v", t)
	}
	var list []*Module
	var errs []error
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, fail("expected a module's name: %v", err)
		}
		var fields map[string]json.RawMessage
		if err := dec.Decode(&fields); err != nil {
			return nil, fail("%s: %v", name, err)
		}
		if seen[name] {
			errs = append(errs, fail("%s is declared twice", name))
		}
		seen[name] = true
		if !isModuleName(name) {
			errs = append(errs, fail("bad module name %q", name))
			continue
		}
		m := &Module{Name: name}
		if err := c.fields(m, fields); err != nil {
			errs = append(errs, fail("%s: %v", name, err))
		}
		list = append(list, m)
	}
	if _, err := dec.Token(); err != nil {
		return nil, fail("%v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fail("text after the object")
	}
	return list, errors.Join(errs...)
}

func isModuleName(s string) bool {
	return s != "" && len(s) < 200 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// fields reads the fields of a module that [Module] has.
func (c *Checkout) fields(m *Module, fields map[string]json.RawMessage) error {
	if err := perSource(m, fields["flags_extra_hip_per_source"]); err != nil {
		return fmt.Errorf("flags_extra_hip_per_source: %w", err)
	}
	read := func(key string, use func(value)) error {
		list, err := texts(fields[key])
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		for _, text := range list {
			v, err := evaluate(text, folders())
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			use(v)
		}
		return nil
	}
	return errors.Join(
		read("srcs", func(v value) { c.addSource(m, v) }),
		read("extra_include", func(v value) { m.Include = append(m.Include, path.Clean(v.format())) }),
		read("flags_extra_hip", func(v value) {
			if v.unknown {
				m.Flags = append(m.Flags, Flag{v.text, true})
			} else if text := strings.TrimSpace(v.format()); text != "" && v.v != nil {
				m.Flags = append(m.Flags, Flag{Text: text})
			}
		}),
		read("blob_gen_cmd", func(v value) {
			if words := strings.Fields(v.format()); len(words) > 0 && v.v != nil {
				words[0] = path.Clean(words[0])
				m.Generators = append(m.Generators, strings.Join(words, " "))
			}
		}),
		read("third_party", func(v value) { m.Libraries = append(m.Libraries, v.format()) }),
	)
}

// texts reads a string or a list of strings.
func texts(raw json.RawMessage) ([]string, error) {
	if raw == nil || string(raw) == "null" {
		return nil, nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, nil
	}
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("expected a string or a list of strings: %w", err)
	}
	return list, nil
}

// perSource reads the flags for sources, by pattern. Unlike other fields they are plain strings, not Python expressions.
func perSource(m *Module, raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	var patterns map[string][]string
	if err := json.Unmarshal(raw, &patterns); err != nil {
		return err
	}
	for pattern, flags := range patterns {
		m.SourceFlags = append(m.SourceFlags, SourceFlags{pattern, flags})
	}
	slices.SortFunc(m.SourceFlags, func(a, b SourceFlags) int { return strings.Compare(a.Pattern, b.Pattern) })
	return nil
}

// addSource adds a file, or the sources in a folder, to Sources. It adds a path that the checkout does not have to Missing.
func (c *Checkout) addSource(m *Module, v value) {
	name := path.Clean(v.format())
	if v.unknown || !fs.ValidPath(name) {
		m.Missing = append(m.Missing, name)
		return
	}
	info, err := fs.Stat(c.files, name)
	switch {
	case err != nil:
		m.Missing = append(m.Missing, name)
	case info.Mode().IsRegular():
		m.Sources = append(m.Sources, name)
	case info.IsDir():
		empty := true
		for _, pattern := range []string{"*.cpp", "*.cu"} {
			found, _ := fs.Glob(c.files, name+"/"+pattern) // the pattern is valid, and other errors are missing files
			m.Sources = append(m.Sources, found...)
			empty = empty && len(found) == 0
		}
		if empty {
			m.Missing = append(m.Missing, name)
		}
	default:
		m.Missing = append(m.Missing, name)
	}
}
