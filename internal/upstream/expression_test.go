package upstream

import (
	"strings"
	"testing"
)

func TestEvaluate(t *testing.T) {
	for text, want := range map[string]string{
		`'-O3'`:                                  "-O3",
		`"a" 'b'`:                                "ab",
		`r'\n' '\n\x41\u0042\101\q'`:             "\\n\nABA\\q",
		`f'{AITER_CSRC_DIR}/a.cu'`:               "csrc/a.cu",
		`F"{AITER_META_DIR}/x {{}} }}{{"`:        "./x {} }{",
		`f'-DDIR=\\"{CK_DIR}/x\\"'`:              `-DDIR=\"3rdparty/composable_kernel/x\"`,
		`f'{AITER_CONFIGS.FILE}:{get_gfx()}'`:    "{AITER_CONFIGS.FILE}:{get_gfx()}",
		`f'-D={os.environ.get("A", 2)}'`:         "-D=2",
		`f'-D={os.environ.get("A")}'`:            "-D=None",
		`'a' if hasattr(torch, 'b') else 'c'`:    "{'a' if hasattr(torch, 'b') else 'c'}",
		`'a' if 1 + 1 >= 2 else 'c'`:             "a",
		`'a' if not '' and 'x' in 'xyz' else ''`: "a",
		`'a' if 'q' not in 'xyz' == True else 0`: "{'a' if 'q' not in 'xyz' == True else 0}",
		`('a' if (False or None) else 'c')`:      "c",
		`'a' if True or get_gfx() else 'b'`:      "a",
		`'a' if False and get_gfx() else 'b'`:    "b",
		"\"\"\"a\nb\"\"\"":                       "a\nb",
		`-1 + 0x10`:                              "15",
		`None`:                                   "None",
		`f(x, y=1, z=(2))[0].a`:                  "{f(x, y=1, z=(2))[0].a}",
		`1 is not None`:                          "True",
	} {
		v, err := evaluate(text, folders())
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := v.format(); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestEvaluateWrong(t *testing.T) {
	for text, want := range map[string]string{
		``:                                       `expected a value, got ""`,
		`'a`:                                     "a string does not end",
		"'a\n'":                                  "does not end on its line",
		`'''a`:                                   "does not end",
		`'\x4'`:                                  `the escape \x is too short`,
		`'\ud800'`:                               `bad escape \ud800`,
		`b'a'`:                                   "a bytes literal",
		`f'{a'`:                                  `"{" without "}"`,
		`f'}'`:                                   `a single "}"`,
		`f'{}'`:                                  "an empty field",
		`f'{a:>4}'`:                              "formats and conversions",
		`f'{a!r}'`:                               "formats and conversions",
		`f'{a)}'`:                                "without its opening",
		`'a' 1`:                                  "expected the end of the expression",
		`'a' if 1`:                               `expected "else"`,
		`(1`:                                     `expected ")"`,
		`[1]`:                                    "expected a value",
		`lambda: 1`:                              "expected the end",
		`a.1`:                                    "expected",
		"\x00":                                   "not text",
		`f(a, *b)`:                               "expected a value",
		strings.Repeat("(", 10000):               "more than 100 nested",
		strings.Repeat("not ", 10000):            "more than 100 nested",
		strings.Repeat("-", 10000):               "more than 100 nested",
		"'" + strings.Repeat("a", maxText) + "'": "bytes, more than",
	} {
		v, err := evaluate(text, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %q, error %v, want an error with %q", text, v.format(), err, want)
		}
	}
	if _, err := evaluate(nested(200), nil); err == nil {
		t.Error("200 nested f-strings: no error")
	}
}

// nested returns n f-strings, each in a field of the next one.
func nested(n int) string {
	s := "1"
	for range n {
		s = "f'''{" + s + "}'''"
	}
	return s
}

func FuzzEvaluate(f *testing.F) {
	for _, text := range []string{`f'{A}/b {os.environ.get("X", 1)}'`, `'a' if not (b or 'c' in d.e(1)[2]) else r"\n"`, `"""a"""`, `-0x1_0`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := evaluate(text, folders())
		if err == nil && len(v.format()) > 2*maxText+10 {
			t.Errorf("a value of %d bytes", len(v.format()))
		}
	})
}
