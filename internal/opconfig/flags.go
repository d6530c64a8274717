package opconfig

import (
	"fmt"
	"strings"
)

// flagSet reads and checks flags by the targets for which they are used.
func (d *decoder) flagSet(n *node, where string, rules *flagRules) FlagSet {
	var f FlagSet
	list := func(to *[]string) func(*node) {
		return func(n *node) { *to = d.flagList(n, where, rules) }
	}
	d.table(n, where, map[string]func(*node){
		"common": list(&f.Common),
		"hip":    list(&f.HIP),
		"cuda":   list(&f.CUDA),
		"cpu":    list(&f.CPU),
		"arch":   func(n *node) { f.Arch = d.archFlags(n, where+".arch", rules) },
		"optional": func(n *node) {
			if strings.HasSuffix(where, ".optional") {
				d.fail(n.at, "optional flags have no optional flags of their own; write them in one list")
				return
			}
			optional := d.flagSet(n, where+".optional", rules)
			f.Optional = &optional
		},
	})
	return f
}

// groups divides flags into those of a group: a flag with its value.
func groups(flags []string) [][]string {
	var list [][]string
	for i := 0; i < len(flags); i++ {
		first := i
		if takesValue(flags[i]) && i+1 < len(flags) {
			i++
		}
		list = append(list, flags[first:i+1])
	}
	return list
}

// sourceFlags is like flagSet, and also reads a plain list as common flags.
func (d *decoder) sourceFlags(n *node, where string) FlagSet {
	if _, ok := n.value.([]any); ok {
		return FlagSet{Common: d.flagList(n, where, compilerFlags())}
	}
	return d.flagSet(n, where, compilerFlags())
}

func (d *decoder) archFlags(n *node, where string, rules *flagRules) map[string][]string {
	if _, ok := n.value.(map[string]any); !ok {
		d.wrongType(n, where, "a table of patterns, such as \"gfx9*\" = [\"-DX\"]")
		return nil
	}
	flags := map[string][]string{}
	for _, name := range n.order {
		list := n.fields[name]
		if pattern, ok := d.checkPattern(name, list.key, false); ok {
			flags[pattern] = append(flags[pattern], d.flagList(list, where, rules)...)
		}
	}
	return flags
}

// flagList reads a list of arguments. It drops an argument that is empty after expansion.
func (d *decoder) flagList(n *node, where string, rules *flagRules) []string {
	var flags []string
	var nodes []*node
	d.strings(n, where, func(s string, n *node) {
		if s, ok := d.expand(s, n); ok && s != "" {
			flags, nodes = append(flags, s), append(nodes, n)
		}
	})
	check := flagCheck{rules: rules}
	for i := 0; i < len(flags); i++ {
		if refusal := check.flag(flags[i]); refusal.reason != "" {
			d.refuseFlag(nodes[i].at, flags[i], refusal)
			continue
		}
		if !takesValue(flags[i]) {
			continue
		}
		i++
		if i == len(flags) {
			d.fail(nodes[i-1].at, "flag %q needs a value after it in the same list", flags[i-1])
		} else if refusal := check.value(flags[i-1], flags[i]); refusal.reason != "" {
			d.refuseFlag(nodes[i].at, flags[i], refusal)
		}
	}
	return flags
}

func (d *decoder) refuseFlag(at int, flag string, r refusal) {
	d.add(at, &Error{Msg: fmt.Sprintf("flag %q is not allowed: %s", flag, r.reason), Suggestion: r.nearest})
}

// takesValue reports whether the next argument belongs to the flag.
func takesValue(flag string) bool {
	if _, passes := passesOn(flag); passes {
		return true
	}
	for word := range strings.FieldsSeq("-D -U -L -l -u -z -T -isystem -iquote -idirafter -include -imacros --param " +
		"-diag-suppress --diag-suppress -maxrregcount --maxrregcount --threads -threads -t") {
		if flag == word {
			return true
		}
	}
	return false
}
