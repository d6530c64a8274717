package upstream

import (
	"fmt"
	"strings"
	"testing"
)

const stubs = `
from x import compile_ops
NAME = "module_b"  # a comment with @compile_ops(
"""@compile_ops("no")"""
# @compile_ops("no")

@compile_ops("module_a", develop=True)
def first(out: Tensor, x: "torch.Tensor | None" = None, n: int = (1, 2)[0]) -> None: ...

@compile_ops(
    NAME, fc_name="real", ffi_type='ctypes',
    gen_fake=lambda a, b: (a, b),
)
@guard(a=1)
async def second(
    a: int,  # of what
    *, b: Optional[List[int]] = [1,
      2],
    **rest,
) -> int:
    return first(a)

class C:
    @compile_ops(f"module_{x}", None)
    def third(self): ...
`

func TestReadStubs(t *testing.T) {
	ops, err := readStubs("a.py", stubs)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, op := range ops {
		got = append(got, fmt.Sprint(op))
	}
	want := []string{
		`{first first module_a tensors [{out Tensor } {x "torch.Tensor | None" None} {n int (1,2)[0]}] a.py 7}`,
		`{second real module_b ctypes [{a int } {b Optional[List[int]] [1,2]}] a.py 10}`,
		`{third third  torch [{self  }] a.py 24}`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestReadStubsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"@compile_ops('a'\ndef f(): ...":           `a.py:1: @compile_ops: "(" without ")"`,
		"\n@compile_ops('a')\nx = 1\n":             "a.py:2: @compile_ops: expected a function after the decorator",
		"@compile_ops('a')\ndef f: ...\n":          "a.py:1: @compile_ops: expected the function's arguments",
		"@compile_ops('a')\ndef f(\n":              `a.py:1: @compile_ops: "(" without ")"`,
		"x = compile_ops\n\ny = 'a":                "a.py:3: a string does not end",
		"@compile_ops('a')\n":                      "expected a function",
		"@compile_ops('a')\n@other\n@other2(\n\n)": "expected a function",
	} {
		if ops, err := readStubs("a.py", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, error %v, want %q", text, ops, err, want)
		}
	}
}

func FuzzReadStubs(f *testing.F) {
	f.Add(stubs)
	f.Add("@compile_ops('a')\ndef")
	f.Add("compile_ops\n@")
	f.Fuzz(func(t *testing.T, text string) {
		ops, err := readStubs("a.py", "compile_ops\n"+text)
		if err != nil && ops != nil {
			t.Error("operators and an error")
		}
		for _, op := range ops {
			if op.Line < 2 || op.Line > strings.Count(text, "\n")+2 {
				t.Errorf("line %d", op.Line)
			}
		}
	})
}
