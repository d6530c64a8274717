package opconfig_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/opconfig"
)

// within returns a valid configuration with array as its flags.
func within(array string) string { return in("flags.common = " + array) }

// TestLimits checks that a configuration just within a limit is accepted, and that one element
// more is reported at its position.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct{ fits, more, want string }{
		"depth of arrays": {
			in("targets = " + strings.Repeat("[", 13) + strings.Repeat("]", 13)),
			in("targets = " + strings.Repeat("[", 13) + mark + "[" + strings.Repeat("]", 14)), "nested too deep",
		},
		"depth of inline tables": {
			in("doc = " + strings.Repeat("{a=", 13) + "1" + strings.Repeat("}", 13)),
			in("doc = " + strings.Repeat("{a=", 8) + strings.Repeat("{b.c=", 2) + "{a." + mark + "b=1" + strings.Repeat("}", 11)), "nested too deep",
		},
		"depth of a dotted key": {
			in(strings.Repeat("a.", 13) + "a = 1"),
			in(strings.Repeat("a.", 14) + mark + "a = 1"), "nested too deep",
		},
		"depth of a header": {
			in("") + "[" + strings.Repeat("a.", 15) + "a]",
			in("") + "[" + strings.Repeat("a.", 16) + mark + "a]", "nested too deep",
		},
		"depth of an array's header": {
			in("") + "[[" + strings.Repeat("a.", 14) + "a]]",
			in("") + mark + "[[" + strings.Repeat("a.", 15) + "a]]", "nested too deep",
		},
		"length of a key": {
			in(strings.Repeat("a", 1000) + " = 1"),
			in("'" + strings.Repeat("é", 490) + "'." + mark + strings.Repeat("a", 40) + " = 1"), "the key is too long",
		},
		"length of a string": {
			within("['-D" + strings.Repeat("a", 16_380) + "']"),
			within("['-DA', " + mark + "'-D" + strings.Repeat("a", 16_381) + "']"), "a value of 16385 bytes is too long",
		},
		"values": {
			within("[" + strings.Repeat("'-DA',", 19_980) + "]"),
			within("[" + strings.Repeat("'-DA',", 19_995) + "]\n" + mark + "doc = 'x'\n"), "too many values",
		},
		"a path": {
			source("") + "[[module.module_b.source]]\npath = 'csrc" + strings.Repeat("/.", 507) + "/b.hip'",
			source("") + "[[module.module_b.source]]\npath = " + mark + "'csrc" + strings.Repeat("/.", 508) + "/b.hip'", "source \"csrc",
		},
		"inherited flags": {
			inheriting(9000, 116), strings.Replace(inheriting(9000, 117), "module_116]", mark+"module_116]", 1),
			"the modules inherit too many flags",
		},
		"inherited optional flags": {
			strings.Replace(inheriting(9000, 116), "flags.common", "flags.optional.common", 1),
			strings.NewReplacer("flags.common", "flags.optional.common", "module_116]", mark+"module_116]").Replace(inheriting(9000, 117)),
			"the modules inherit too many flags",
		},
		"operators": {
			source("") + operators(500),
			source("") + strings.Replace(operators(501), "[[module.module_a.op]]\nname='f500'", "[[module.module_a."+mark+"op]]\nname='f500'", 1),
			"module_a has 501 operators",
		},
		"sources with conditions": {
			conditioned(500, ""),
			conditioned(500, strings.Replace(strings.Repeat(conditionedSource, 100), "source", mark+"source", 1)), "module_a has 600 sources",
		},
		"parts": {
			source("") + operators(4) + "[module.module_a.axis.n]\nargument='x'\ndimension=0\ndefine='N'\nvalues=[" + ranges(1023) + "]",
			source("") + operators(4) + "[module.module_a.axis." + mark + "n]\nargument='x'\ndimension=0\ndefine='N'\nvalues=[" + ranges(1024) + "]",
			"module_a has too many parts",
		},
	} {
		for _, p := range mistakesOf(t, c.fits, nil) {
			if strings.Contains(p, "too ") || strings.Contains(p, "at most") {
				t.Errorf("%s, within the limit: %.300s", name, p)
			}
		}
		text, positions := split(c.more)
		want := "config/main.toml:" + positions[0] + ": " + c.want
		if got := mistakesOf(t, text, nil); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%s, beyond the limit\n got %.400q\nwant %s", name, got, want)
		}
	}
}

// inheriting returns a configuration with many default flags and modules.
func inheriting(flags, modules int) string {
	return "[defaults]\nflags.common = [" + strings.Repeat("'-DA',", flags) + "]\n" +
		times(modules, func(i int) string { return fmt.Sprintf("[module.module_%d]\nsource = [{path = 'csrc/a.cpp'}]\n", i) })
}

func operators(n int) string {
	return times(n, func(i int) string {
		return fmt.Sprintf("[[module.module_a.op]]\nname='f%d'\nschema='(Tensor x) -> ()'\n", i)
	})
}

// conditionedSource is a source with a condition on the axis of conditioned, and for no known target.
const conditionedSource = "[[module.module_a.source]]\npath='csrc/a.hip'\nwhen={arch=['tpu?!'], axis={n=['5-']}}\n"

// conditioned returns a module with n sources that have a condition on an axis, and with more text.
func conditioned(n int, more string) string {
	return strings.Repeat(conditionedSource, n) + more + operators(1) +
		"[module.module_a.axis.n]\nargument='x'\ndimension=0\ndefine='N'\nvalues=['1-4','5-']\n"
}

// ranges returns n ranges of one size and an open one.
func ranges(n int) string {
	return times(n, func(i int) string { return fmt.Sprintf("'%d',", i) }) + fmt.Sprintf("'%d-'", n)
}

// TestLimitsOfFiles checks that limits apply to all files together.
func TestLimitsOfFiles(t *testing.T) {
	comment := strings.Repeat("#", 99) + "\n"
	for name, c := range map[string]struct {
		text string
		more func(file int) string
		n    int
		want string
	}{
		"bytes": {"", func(int) string { return strings.Repeat(comment, 5000) }, 3,
			"config/main.toml:1:12: cannot read config/2.toml: the configuration is larger than 1048576 bytes, all its files together"},
		"values": {"", func(i int) string { return fmt.Sprintf("x%d = [%s]", i, strings.Repeat("1,", 9000)) }, 3,
			"config/2.toml:1:3989: too many values"},
		"files": {"", func(int) string { return "" }, 1000, "config/main.toml:1:12: cannot read config/999.toml: more than 1000 files"},
		"text of variables": {in("flags.common = ['" + strings.Repeat("-D${AITER_UP}", 1000) + "']"), func(i int) string {
			return fmt.Sprintf("[module.module_b%d]\nflags.common = [%s]\n[[module.module_b%d.source]]\npath = 'csrc/a.cpp'\n", i,
				strings.Repeat("'-D${AITER_LONG}',", 300), i)
		}, 4, "variables expand to too much text: expected at most 1048576 bytes in all files"},
	} {
		files := map[string]string{"config/main.toml": "include = ['[0-9]*.toml']\n" + c.text}
		for i := range c.n {
			files[fmt.Sprintf("config/%d.toml", i)] = c.more(i)
		}
		_, err := opconfig.Load(tree(files), "config/main.toml",
			opconfig.Options{Env: env(map[string]string{"AITER_UP": "../up", "AITER_LONG": strings.Repeat("v", 1000)})})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %.300v, want %s", name, err, c.want)
		}
	}
}

// TestMistakesAreBounded checks that the error for a file with many mistakes is bounded, and that
// its last line reports the end of reading.
func TestMistakesAreBounded(t *testing.T) {
	got := mistakesOf(t, in(times(5000, func(i int) string { return fmt.Sprintf("key%d = 1\n", i) })), nil)
	if len(got) != 101 || !strings.Contains(got[100], "reading stopped after 100 mistakes") {
		t.Errorf("%d mistakes, the last: %s", len(got), got[len(got)-1])
	}
}

// TestLastMistakeHasNoSuggestion checks that the line that ends the mistakes has no suggestion for a flag.
func TestLastMistakeHasNoSuggestion(t *testing.T) {
	got := mistakesOf(t, within("["+strings.Repeat("'--zzzzzzzzzzzz',", 100)+"'-pthred']"), nil)
	if len(got) != 101 || strings.Contains(got[99], "did you mean") {
		t.Errorf("%d mistakes, the last of a flag: %s", len(got), got[len(got)-2])
	}
}
