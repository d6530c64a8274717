package upstream

import (
	"strings"
	"testing"
)

func row(fields ...string) string {
	return strings.ReplaceAll(strings.Join(fields, fieldMark), "=>", defaultMark) + "\n"
}

func TestReadTable(t *testing.T) {
	const text = "x type_name() [F = void (*)(const aiter_tensor_t &, std::optional<std::vector<std::basic_string<char>>>, " +
		"ns::Mode, float)]"
	list, err := readTable(row("_set_current_hip_stream", "[F = void (*)(long)]", "-", "stream_ptr") +
		row("f", text, "--e-", "out", "names=>n", "mode=>i-2", "eps=>f3dcccccd") + row("g", "[F = int (*)()]", ""))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range list {
		s, err := f.Schema()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, f.Name+s.String(), f.Types())
	}
	want := []string{"f(Tensor out, str[]? names=None, int mode=-2, float eps=0.1) -> ()",
		"void (const aiter_tensor_t &, std::optional<std::vector<std::basic_string<char>>>, ns::Mode, float)", "g() -> int", "int ()"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestReadTableWrong(t *testing.T) {
	const f = "[F = void (*)(int, int)]"
	for text, want := range map[string]string{
		"x\n":                                  `has the line "x\n"`,
		row("", f, "--"):                       "has the line",
		row("f", "[F = int]", ""):              "is not the type of a function",
		row("f", f, "-"):                       "2 types for 1 arguments",
		row("f", f, "--", "a"):                 "1 names for 2 arguments",
		row("f", f, "--", "a=>", "b"):          "argument a: schemas have no default",
		row("f", f, "--", "a=>?", "b"):         "schemas have no default",
		row("f", f, "--", "a=>ix", "b"):        "schemas have no default",
		row("f", f, "--", "a", "b=>fzzzzzzzz"): "argument b: schemas have no default",
	} {
		if list, err := readTable(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, error %v, want %q", text, list, err, want)
		}
	}
	for _, c := range []string{"at::Tensor", "std::vector<std::optional<long>>", "void *",
		"std::optional<", "std::pair<int, int>", "Mode", ""} {
		if got, err := schemaType(c, false); err == nil {
			t.Errorf("%s: got %s, want an error", c, got)
		}
	}
}

func TestReadExports(t *testing.T) {
	const text = `
#define EXPORT extern "C" __attribute__((visibility("default")))
// EXPORT int f(int no);
EXPORT int declared(int a);
static const char* s = "EXPORT int f(char no) {", *raw = R"x( int f(char no) { )x";
EXPORT void f(const char* name, size_t at = 0, std::optional<std::pair<int, long>> x = {}, void (*p)(int) = nullptr) {}
AITER_C_ITFS
void g( // comment, with (parenthesis
    aiter_tensor_t* x, unsigned int n) { return h(x, 1); }
AITER_CTYPES_DEFINE_ENTRYPOINT(h, (int M, hipStream_t stream), (M, stream)) { if (M) return g(0, 1); else f(0); return 0; }
AITER_CTYPES_DEFINE_ENTRYPOINT_VOID(v, (), ()) {}
extern "C" std::size_t  unsigned_result (int  n) { return k(n); }
EXPORT int broken(int`
	var got []string
	for _, f := range readExports(text, []string{"f", "g", "h", "v", "k", "declared", "unsigned_result", "broken"}) {
		var names []string
		for _, p := range f.Params {
			names = append(names, p.Name)
		}
		s := "no schema"
		if x, err := f.Schema(); err == nil {
			s = x.String()
		}
		got = append(got, f.Name+": "+f.Types()+" "+strings.Join(names, " ")+" "+s)
	}
	// f has a parameter that is a pointer to a function, which no stub can pass.
	want := []string{
		"g: void (aiter_tensor_t *, unsigned int) x n (Tensor? x, int n) -> ()",
		"h: int (int, hipStream_t) M stream (int M) -> int",
		"v: int ()  () -> ()",
		"unsigned_result: std::size_t (int) n no schema",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func FuzzReadExports(f *testing.F) {
	f.Add("EXPORT int f(int a) {}")
	f.Add("AITER_CTYPES_DEFINE_ENTRYPOINT(f, (int M), (M)) {")
	f.Add("f(")
	f.Fuzz(func(t *testing.T, text string) {
		for _, x := range readExports(text, []string{"f", "g"}) {
			if x.Name != "f" && x.Name != "g" {
				t.Errorf("a function %q", x.Name)
			}
			if s, err := x.Schema(); err == nil && s.String() == "" {
				t.Error("an empty schema")
			}
		}
	})
}

func FuzzReadTable(f *testing.F) {
	f.Add(row("f", "[F = void (*)(int, float)]", "--", "a=>i1", "b=>f00000000"))
	f.Fuzz(func(t *testing.T, text string) {
		list, err := readTable(text)
		if err != nil {
			return
		}
		for _, x := range list {
			if _, err := x.Schema(); err == nil && splitArgs(x.Types()) == nil {
				t.Errorf("no types of %q", x.Name)
			}
		}
	})
}
