package schema_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/jit/schema"
)

const (
	fwd = "causal_conv1d_fwd(Tensor(a!) out, Tensor x, Tensor weight, Tensor? bias=None, bool use_silu=False, " +
		"Tensor? seq_idx=None, Tensor? initial_states=None, Tensor(b!)? final_states_out=None) -> ()"
	bwd = "causal_conv1d_bwd(Tensor(a!) dx, Tensor(b!) dweight, Tensor(c!)? dbias, Tensor x, Tensor weight, Tensor? bias, " +
		"Tensor dout, bool use_silu=False, Tensor? seq_idx=None, Tensor? initial_states=None, " +
		"Tensor? dfinal_states=None, Tensor(d!)? dinitial_states=None) -> ()"
)

// TestCanonical compares the input of Parse with the output of String.
func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		fwd:                       fwd,
		bwd:                       bwd,
		"()->()":                  "() -> ()",
		" f ( ) -> ( ) ":          "f() -> ()",
		"() -> Tensor":            "() -> Tensor",
		"() -> (Tensor)":          "() -> Tensor",
		"() -> (Tensor(a!),int?)": "() -> (Tensor(a!), int?)",
		"aten::add.out(Tensor self, Tensor(a!) out)\n\t-> Tensor(a!)": "aten::add.out(Tensor self, Tensor(a!) out) -> Tensor(a!)",
		"(int a=-1)->()":                                                "(int a=-1) -> ()",
		"(SymInt a=9223372036854775807)->()":                            "(int a=9223372036854775807) -> ()",
		"(float a=1)->()":                                               "(float a=1.0) -> ()",
		"(float a=1e-6)->()":                                            "(float a=1e-06) -> ()",
		"(float a=-.5)->()":                                             "(float a=-0.5) -> ()",
		"(float? a=1e+30, float? b=None)->()":                           "(float? a=1e+30, float? b=None) -> ()",
		"(bool a=True, bool? b=None)->()":                               "(bool a=True, bool? b=None) -> ()",
		`(str a='x "y"')->()`:                                           `(str a="x \"y\"") -> ()`,
		`(str a="a\\b", str b="")->()`:                                  `(str a="a\\b", str b="") -> ()`,
		"(Device d=cpu, ScalarType t=float32)->()":                      `(Device d="cpu", ScalarType t="float32") -> ()`,
		`(Device? d="cuda:0")->()`:                                      `(Device? d="cuda:0") -> ()`,
		"(int[] a, int[2] b=[1,-2], int[]? c=None, float[] d=[])->()":   "(int[] a, int[2] b=[1, -2], int[]? c=None, float[] d=[]) -> ()",
		"(Tensor[] a, Tensor(x) b, bool[] c=[True], str[] d=['q'])->()": `(Tensor[] a, Tensor(x) b, bool[] c=[True], str[] d=["q"]) -> ()`,
	} {
		s, err := schema.Parse(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if s.String() != want {
			t.Errorf("%q\n got %s\nwant %s", in, s, want)
		}
		again, err := schema.Parse(s.String())
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%s does not round-trip: %#v, %v", s, again, err)
		}
	}
}

func TestParts(t *testing.T) {
	s, err := schema.Parse(bwd)
	if err != nil {
		t.Fatal(err)
	}
	if s.Name != "causal_conv1d_bwd" || len(s.Args) != 12 || s.Required() != 7 || s.Returns != nil {
		t.Errorf("name %s, %d arguments, %d required, returns %v", s.Name, len(s.Args), s.Required(), s.Returns)
	}
	want := schema.Type{Kind: schema.Tensor, Optional: true, Alias: "c", Mutable: true}
	if i := s.Index("dbias"); i != 2 || s.Args[i].Type != want || s.Args[i].Default != nil {
		t.Errorf("dbias is argument %d, %v", i, s.Args[i])
	}
	silu := s.Args[s.Index("use_silu")]
	if silu.Default == nil || silu.Default.Any() != false || silu.Default.IsNone() {
		t.Errorf("use_silu defaults to %v", silu.Default)
	}
	if idx := s.Args[s.Index("seq_idx")]; idx.Default == nil || !idx.Default.IsNone() || *idx.Default != schema.None() {
		t.Errorf("seq_idx defaults to %v", idx.Default)
	}
	if i := s.Index("nothing"); i != -1 {
		t.Errorf("nothing is argument %d", i)
	}
}

func TestValues(t *testing.T) {
	s, err := schema.Parse("f(int n, int a=-3, float b=2, str c='q', int[] d=[1, 2], ScalarType e=half) -> int")
	if err != nil {
		t.Fatal(err)
	}
	want := []any{nil, int64(-3), 2.0, "q", []any{int64(1), int64(2)}, "half"}
	for i, w := range want {
		if d := s.Args[i].Default; d == nil && w != nil || d != nil && !reflect.DeepEqual(d.Any(), w) {
			t.Errorf("%s: got %#v, want %#v", s.Args[i].Name, d, w)
		}
	}
	if s.Required() != 1 || len(s.Returns) != 1 || s.Returns[0].Kind != schema.Int {
		t.Errorf("required %d, returns %v", s.Required(), s.Returns)
	}
}

// TestErrors marks the position of each error with a ‸.
func TestErrors(t *testing.T) {
	for in, expected := range map[string]string{
		"‸":                                  `"("`,
		"f‸":                                 `"("`,
		"f.‸(":                               "an overload's name",
		"a::‸:(":                             "a name",
		"‸5()->()":                           `"("`,
		"(‸":                                 "a type",
		"()‸":                                `"->"`,
		"()‸-":                               `"->"`,
		"()->‸":                              "a type",
		"()->(‸":                             "a type",
		"()->()‸x":                           "the end of the schema",
		"(Tensor‸)->()":                      "an argument's name",
		"(Tensor x‸":                         `"," or ")"`,
		"(Tensor x ‸y)->()":                  `"," or ")"`,
		"(Tensor x, ‸)->()":                  "a type",
		"(‸tensor x)->()":                    "a type",
		"(Tensor x, ‸int64_t n)->()":         "a type",
		"(‸Foo x)->()":                       "a type",
		"(Tensor(‸!) x)->()":                 "an alias set",
		"(Tensor(a! ‸x)->()":                 `")"`,
		"(int‸(a) x)->()":                    "an argument's name",
		"(int[‸0] x)->()":                    "a length",
		"(int[‸x] x)->()":                    `"]"`,
		"(int[‸99999999999999999999] x)->()": "a length",
		"(‸Device[] x)->()":                  "a type that lists can hold",
		"(Tensor?‸[] x)->()":                 "an argument's name",
		"(Tensor x, int ‸x)->()":             "a name that no earlier argument has",
		"(int a=1, int b‸)->()":              `"=" and a default`,
		"(Tensor a=‸None)->()":               "no default, since a Tensor must be given",
		"(Tensor? a=‸1)->()":                 "no default other than None",
		"(int a=‸1.5)->()":                   "an integer",
		"(int a=‸9223372036854775808)->()":   "an integer",
		"(int a=‸None)->()":                  "an integer",
		"(int? a=‸x)->()":                    "an integer of 64 bits or None",
		"(float a=‸inf)->()":                 "a number",
		"(float a=‸1e999)->()":               "a number",
		"(bool a=‸true)->()":                 "True or False",
		"(str a=‸x)->()":                     "a quoted string",
		"(str a=‸'x)->()":                    "a quoted string",
		"(Device a=‸1)->()":                  "a device",
		"(ScalarType a=‸None)->()":           "a type such as float32",
		"(int[] a=‸1)->()":                   "a list in brackets",
		"(int[] a=[‸True])->()":              "an integer",
		"(int[2] a=[‸1])->()":                "2 elements",
		"(Tensor x, ‸*, int y=1)->()":        "keyword-only",
		"(Tensor x, ‸é)->()":                 "a type",
		"()->(Tensor ‸out)":                  `"," or ")"`,
	} {
		at := strings.Index(in, "‸")
		text := strings.Replace(in, "‸", "", 1)
		got, err := schema.Parse(text)
		var syntax *schema.SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("%q: %v, %v", text, got, err)
			continue
		}
		if syntax.Offset != at || !strings.Contains(syntax.Expected, expected) || syntax.Input != text || syntax.Got == "" {
			t.Errorf("%q: offset %d (want %d): %v", text, syntax.Offset, at, err)
		}
	}
}

func TestErrorText(t *testing.T) {
	_, err := schema.Parse("(Tensor x y) -> ()")
	want := `schema "(Tensor x y) -> ()": at offset 10: expected "," or ")", got "y"`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestSuggestions(t *testing.T) {
	for word, want := range map[string]string{"tensor": "Tensor", "int64_t": "int", "STRING": "str", "dtype": "ScalarType", "Foo": ""} {
		_, err := schema.Parse("(" + word + " x) -> ()")
		var syntax *schema.SyntaxError
		if !errors.As(err, &syntax) || syntax.Suggestion != want || want != "" &&
			!strings.HasSuffix(err.Error(), "; did you mean \""+want+"\"?") {
			t.Errorf("%s: %v, want %q", word, err, want)
		}
	}
}

func TestKindNames(t *testing.T) {
	if s := schema.Kind(200).String(); s != "Kind(200)" {
		t.Errorf("got %s", s)
	}
	for k := schema.TensorList; k <= schema.StrList; k++ {
		if k.String() != k.Elem().String()+"[]" {
			t.Errorf("%s holds %s", k, k.Elem())
		}
	}
	if schema.Tensor.Elem() != schema.Invalid {
		t.Error("Elem of a tensor is not Invalid")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		fwd, bwd, "", "()->()", `(str a="\"", float b=-1e5, int[2]? c=[1,2]) -> (Tensor(a!), int[])`,
		"aten::f.x(Device d='cpu', ScalarType t=half) -> Tensor", "(Tensor x, Tensor x) -> ()", "(int a=0x10)->()",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := schema.Parse(in)
		if err != nil {
			var syntax *schema.SyntaxError
			if !errors.As(err, &syntax) || syntax.Offset < 0 || syntax.Offset > len(in) || syntax.Expected == "" {
				t.Fatalf("%q: %#v", in, err)
			}
			return
		}
		again, err := schema.Parse(s.String())
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("%q -> %s -> %s, %v", in, s, again, err)
		}
		if n := s.Required(); n > len(s.Args) {
			t.Fatalf("%q: %d of %d required", in, n, len(s.Args))
		}
	})
}
