package opconfig

import (
	"fmt"
	"strings"
	"testing"
)

// compare describes the first difference between the scanner's tree and the decoded values, "" if there is none.
func compare(n *node, value any, where string) string {
	switch v := value.(type) {
	case map[string]any:
		if len(n.fields) != len(v) || len(n.order) != len(v) || len(n.items) > 0 {
			return fmt.Sprintf("%s: scanned fields %q, decoded %q", where, n.order, keys(v))
		}
		for name, e := range v {
			if n.fields[name] == nil {
				return fmt.Sprintf("%s: %q not scanned", where, name)
			}
			if d := compare(n.fields[name], e, where+"."+name); d != "" {
				return d
			}
		}
	case []map[string]any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = v[i]
		}
		return compare(n, list, where)
	case []any:
		if len(n.items) != len(v) || len(n.fields) > 0 {
			return fmt.Sprintf("%s: scanned %d elements, decoded %d", where, len(n.items), len(v))
		}
		for i, e := range v {
			if d := compare(n.items[i], e, fmt.Sprint(where, "[", i, "]")); d != "" {
				return d
			}
		}
	default:
		if len(n.fields)+len(n.items) > 0 {
			return fmt.Sprintf("%s: scanned a table or array, decoded %T", where, value)
		}
	}
	return ""
}

// checkStrings checks that walkString returns the decoded string of every literal.
func checkStrings(t *testing.T, src string, n *node) {
	t.Helper()
	if s, ok := n.value.(string); ok {
		var b strings.Builder
		walkString(src, n.at, func(_ int, decoded string) { b.WriteString(decoded) })
		// The library keeps some carriage returns and drops others.
		if strings.ReplaceAll(b.String(), "\r", "") != strings.ReplaceAll(s, "\r", "") {
			t.Errorf("at %d: walked %q, decoded %q\n%s", n.at, b.String(), s, src)
		}
	}
	for _, f := range n.fields {
		checkStrings(t, src, f)
	}
	for _, e := range n.items {
		checkStrings(t, src, e)
	}
}

func checkScan(t *testing.T, src string) {
	t.Helper()
	tree := scan(src, maxValues)
	if tree.over != nil {
		return // a load does not pass such a text to the library
	}
	root := tree.root
	values, err := decode(src)
	if err != nil || tree.dup != nil {
		return // a mistake in both cases
	}
	if deep, n := extent(values); deep > maxDepth+1 || n > 2*tree.values {
		t.Errorf("%d levels and %d values, the scanner counted %d values\n%s", deep, n, tree.values, src)
	}
	if d := compare(root, values, ""); d != "" {
		t.Errorf("%s\n%s", d, src)
	}
	attach(root, values)
	checkStrings(t, src, root)
}

// extent returns the number of levels of a value, with its own, and the number of values below
// it.
func extent(value any) (levels, values int) {
	below := func(v any) {
		l, n := extent(v)
		levels, values = max(levels, l), values+n+1
	}
	switch v := value.(type) {
	case map[string]any:
		for _, e := range v {
			below(e)
		}
	case []map[string]any:
		for _, e := range v {
			below(e)
		}
	case []any:
		for _, e := range v {
			below(e)
		}
	}
	return levels + 1, values
}

func scanSeeds() []string {
	return []string{
		"", "# only\n", "a=1", "a . b . \"c d\" = 1\n'' = 2\n\"q\" .x = 3", "\"\\u00e9\\t\" = 'x'",
		"[a]\nb=1\n[a.c]\n[[a.d]]\nx=1\n[[a.d]]\n[a.d.e]\ny=2\n[[a.d.e2]]\n",
		"[[a]]\n[[a.b]]\n[[a]]\n[[a.b]]\n[[a.b]]\nz=1",
		"x = [ 1, [ 2, 'a]', ], {a=1, b.c=[{},{}]}, # ]\n \"\"\"]\n\"\"\", '''']''''' ]\ny={}\n",
		"s = \"\"\"\n a \\\n  \"\" b\"\"\"\"\"\nt = ''\nu=\"\"\nv='''\r\nx'''\nw=\"\"\"\"\"\"",
		"d = 1979-05-27 07:32:00 # c\ne = 1e5\nf = [1979-05-27T07:32:00Z,0x1F]\r\n\tg\t=\ttrue\t",
		"t = { a = 1,\n # comment }\n b = 2, }\n",
		"\"a.b\".c=1\n[\"x]\"]\ny='='\n[[ 'q' . \"]\" ]]\n",
		"s = \"\\\"#\\\\\" # \"\nn = \"\\U0001F642\\x41\\e\"\n",
		"fruit.apple.smooth = true\nfruit.orange = 1\n[fruit2]\n[fruit2.apple.taste]\na=1\n",
	}
}

func TestScan(t *testing.T) {
	for _, src := range scanSeeds() {
		if _, err := decode(src); err != nil {
			t.Errorf("a seed is not valid TOML: %v\n%s", err, src)
		}
		checkScan(t, src)
		if dup := scan(src, maxValues).dup; dup != nil {
			t.Errorf("%q is not a duplicate\n%s", dup.name, src)
		}
	}
}

// TestScanInvalid checks that the scanner ends, and stays in bounds, on any input.
func TestScanInvalid(t *testing.T) {
	for _, seed := range scanSeeds() {
		for i := range seed {
			scan(seed[:i], maxValues)
			scan(seed[i:], maxValues)
			scan(seed[:i]+"[{\"'="+seed[i:], maxValues)
		}
	}
}

func TestRawOffset(t *testing.T) {
	for _, c := range []struct {
		src     string
		want    int
		toFound string // the source from the offset on
	}{
		{`"abc"`, 0, `abc"`},
		{`"abc"`, 2, `c"`},
		{`"abc"`, 3, `"`},
		{`"a\tc"`, 2, `c"`},
		{`"a\u00e9c"`, 2, `\u00e9c"`},
		{`"a\u00e9c"`, 3, `c"`},
		{`"aéc"`, 3, `c"`},
		{`''`, 0, `'`},
		{`''`, 9, `'`},
		{"'''\nab'''", 1, "b'''"},
		{"\"\"\"a\\\n   b\"\"\"", 1, "b\"\"\""},
		{`"""a"""""`, 2, `""""`},
		{`"""a"""`, 1, `"""`},
		{`"abc`, 9, `c`},
	} {
		if got := rawOffset("k="+c.src, 2, c.want) - 2; got > len(c.src) || c.src[got:] != c.toFound {
			t.Errorf("%s: byte %d comes from %d", c.src, c.want, got)
		}
	}
}

func FuzzScan(f *testing.F) {
	for _, s := range scanSeeds() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) { checkScan(t, src) })
}
