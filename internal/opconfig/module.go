package opconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/jit/target"
)

const (
	wantModuleName = "module_ followed by lower-case letters, digits and _"
	wantOpName     = "a C identifier: letters, digits and _, not starting with a digit"
)

func (d *decoder) modules(n *node) {
	if _, ok := n.value.(map[string]any); !ok {
		d.wrongType(n, "module", "tables, [module.module_NAME]")
		return
	}
	for _, name := range n.order {
		if d.full() {
			return
		}
		d.module(name, n.fields[name])
	}
}

func (d *decoder) module(name string, n *node) {
	m, before := &Module{Name: name, Pos: d.doc.position(n.key)}, len(d.mistakes)
	if !isModuleName(name) {
		m.Name = quoteList([]string{name}, "") // in the messages below
		d.add(n.key, &Error{
			Msg:        "bad module name " + quoteList([]string{name}, "") + "; expected " + wantModuleName,
			Suggestion: moduleNameFor(name),
		})
	} else if first := d.cfg.modules[name]; first != nil {
		d.fail(n.key, "module %q is already defined at %s", name, first.Pos)
	} else {
		d.cfg.modules[name] = m
		d.cfg.Modules = append(d.cfg.Modules, m)
	}
	where := "module." + m.Name
	fields := d.shared(m, where)
	fields["doc"] = func(n *node) { m.Doc = d.text(n, "doc") }
	fields["defaults"] = func(n *node) { d.bool(n, "defaults") }
	fields["assembly"] = d.assembly(m, where+".assembly")
	fields["source"] = func(n *node) { d.tables(n, where+".source", d.source(m, where+".source")) }
	fields["op"] = func(n *node) { d.tables(n, where+".op", d.op(m, where+".op")) }
	d.table(n, where, fields)
	d.inherit(m, n)
	d.require(n, "source", where)
	d.checkSize(m, n)
	if d.full() {
		return // the checks below take long, and their mistakes would not be reported
	}
	m.listed = m.sourcesByOp()
	d.checkOverlap(m, n)
	d.checkHolders(m, n)
	d.checkAxes(m, n)
	d.checkSourceAxes(m, n)
	d.checkConditions(m, n)
	if len(d.mistakes) == before {
		d.checkCovered(m, n)
	}
}

func isModuleName(s string) bool {
	rest, ok := strings.CutPrefix(s, "module_")
	return ok && rest != "" && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// moduleNameFor returns a valid name similar to s, "" if it finds none.
func moduleNameFor(s string) string {
	s = strings.ReplaceAll(strings.ToLower(s), "-", "_")
	if !strings.HasPrefix(s, "module_") {
		s = "module_" + s
	}
	if isModuleName(s) {
		return s
	}
	return ""
}

func (d *decoder) duration(n *node) time.Duration {
	s, ok := d.string(n, "timeout")
	if !ok {
		return 0
	}
	t, err := time.ParseDuration(s)
	if err != nil || t <= 0 {
		d.fail(n.at, "timeout %q is not a positive duration; write one such as \"90s\" or \"5m\"", s)
		return 0
	}
	return t
}

func (d *decoder) source(m *Module, where string) func(*node) {
	return func(n *node) {
		s := Source{Pos: d.doc.position(n.key)}
		d.table(n, where, map[string]func(*node){
			"path":  func(n *node) { s.Path, s.Files = d.sourceFiles(n) },
			"flags": func(n *node) { s.Flags = d.sourceFlags(n, where+".flags") },
			"when":  func(n *node) { s.When = d.when(n, where+".when") },
			"ops":   func(n *node) { d.words(n, "ops", d.distinct(&s.Ops, "operator")) },
			"axes": func(n *node) {
				s.Axes = []string{} // not nil: an empty list names no axis
				d.strings(n, "axes", d.distinct(&s.Axes, "axis"))
			},
		})
		d.require(n, "path", where)
		m.Sources = append(m.Sources, s)
	}
}

func (d *decoder) op(m *Module, where string) func(*node) {
	return func(n *node) {
		op := Op{Pos: d.doc.position(n.key)}
		d.table(n, where, map[string]func(*node){
			"name":   func(n *node) { op.Name = d.opName(n) },
			"doc":    func(n *node) { op.Doc = d.text(n, "doc") },
			"python": func(n *node) { op.Python = d.text(n, "python") },
			"schema": func(n *node) { op.Schema = d.schema(n) },
			// Read below, when the arguments are known.
			"tolerance": func(*node) {},
			"args":      func(*node) {},
			"split":     func(*node) {},
			"tune":      func(*node) {},
		})
		d.require(n, "name", where)
		d.require(n, "schema", where)
		if op.Name == "" || n.fields["schema"] == nil {
			return
		}
		d.nameSchema(&op, n.fields["schema"])
		d.tolerances(&op, n.fields["tolerance"])
		d.arguments(&op, n.fields["args"])
		d.split(&op, n.fields["split"])
		d.launchParams(&op, n.fields["tune"])
		if ref, ok := d.cfg.ops[op.Name]; ok {
			first := ref.module.Ops[ref.index].Pos
			d.fail(n.fields["name"].at, "operator %q is already defined in %s at %s", op.Name, ref.module.Name, first)
			return
		}
		d.cfg.ops[op.Name] = opRef{m, len(m.Ops)}
		m.Ops = append(m.Ops, op)
	}
}

// require reports a missing key.
func (d *decoder) require(n *node, key, where string) {
	if _, isTable := n.value.(map[string]any); isTable && n.fields[key] == nil {
		d.fail(n.key, "%s has no %q; it is required", where, key)
	}
}

func (d *decoder) opName(n *node) string {
	name, ok := d.string(n, "name")
	if !ok {
		return ""
	}
	if !isIdentifier(name) {
		d.fail(n.at, "bad operator name %q; expected %s", name, wantOpName)
		return ""
	}
	return name
}

func isIdentifier(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
	return s != "" && strings.Trim(s[:1], letters) == "" && strings.Trim(s, letters+"0123456789") == ""
}

func (d *decoder) schema(n *node) schema.Schema {
	text, ok := n.value.(string)
	if !ok || strings.TrimSpace(text) == "" {
		_, _ = d.string(n, "schema") // it reports the mistake
		return schema.Schema{}
	}
	s, err := schema.Parse(text)
	var syntax *schema.SyntaxError
	if errors.As(err, &syntax) {
		d.add(rawOffset(d.doc.src, n.at, syntax.Offset), &Error{
			Msg:        "bad schema: expected " + syntax.Expected + ", got " + syntax.Got,
			Suggestion: syntax.Suggestion,
			cause:      err,
		})
	}
	return s
}

// nameSchema sets the schema's name to the operator's. It reports another name in the schema.
func (d *decoder) nameSchema(op *Op, n *node) {
	if op.Schema.Name != "" && op.Schema.Name != op.Name {
		d.fail(n.at, "the schema is for %q, the operator is %q; leave the name out of the schema", op.Schema.Name, op.Name)
	}
	op.Schema.Name = op.Name
}

// checkOverlap reports a file that two sources name for the same target. It ignores sources with a
// condition on the toolchain, because only Resolve has the version of the toolchain. It ignores
// conditions on axes, because the whole module has the sources of all values.
func (d *decoder) checkOverlap(m *Module, n *node) {
	first := map[fileTarget]int{}
	for i, s := range m.Sources {
		if at, earlier, found := overlap(s, i, first); found {
			msg := fmt.Sprintf("%s is already a source at %s, also for %s; make their \"when\" exclude each other", at.file, m.Sources[earlier].Pos,
				at.arch)
			if len(s.When.Axis)+len(m.Sources[earlier].When.Axis) > 0 {
				msg += "; conditions on axes do not count, because the whole module has the sources of all values"
			}
			d.fail(n.fields["source"].items[i].key, "%s", msg)
		}
	}
}

type fileTarget struct{ file, arch string }

// overlap finds a file and a known target of s, the i-th source, that an earlier source has too. first
// maps each file and target to the first source that has them; overlap adds those of s.
func overlap(s Source, i int, first map[fileTarget]int) (at fileTarget, earlier int, found bool) {
	for _, arch := range s.When.architectures() {
		for _, file := range s.Files {
			this := fileTarget{file, arch}
			before, known := first[this]
			if !known {
				first[this] = i
			} else if !found {
				at, earlier, found = this, before, true
			}
		}
	}
	return at, earlier, found
}

func common(a, b []string) (string, bool) {
	for _, s := range a {
		if slices.Contains(b, s) {
			return s, true
		}
	}
	return "", false
}

// architectures returns the known architectures for which the conditions hold, none if they
// depend on the toolchain.
func (w When) architectures() []string {
	if w.Toolchain != "" {
		return nil
	}
	return slices.DeleteFunc(target.Known(), func(arch string) bool {
		t, err := target.Parse(arch)
		return err != nil || !w.targets(t)
	})
}
