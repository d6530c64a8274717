package target_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/jit/target"
)

func must(t *testing.T, s string) target.Target {
	t.Helper()
	got, err := target.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in, want, arch, features string
		vendor                   target.Vendor
	}{
		{"gfx942", "gfx942", "gfx942", "", target.HIP},
		{"gfx90a:xnack-", "gfx90a:xnack-", "gfx90a", ":xnack-", target.HIP},
		{"gfx90a:xnack-:sramecc+", "gfx90a:sramecc+:xnack-", "gfx90a", ":sramecc+:xnack-", target.HIP},
		{" gfx1100 ", "gfx1100", "gfx1100", "", target.HIP},
		{"gfx942!", "gfx942", "gfx942", "", target.HIP},
		{"gfx1300!", "gfx1300", "gfx1300", "", target.HIP},
		{"gfx1300:xnack+!", "gfx1300:xnack+", "gfx1300", ":xnack+", target.HIP},
		{"sm_90", "sm_90", "sm_90", "", target.CUDA},
		{"sm_90a", "sm_90a", "sm_90a", "", target.CUDA},
		{"sm_100f", "sm_100f", "sm_100f", "", target.CUDA},
		{"sm_130!", "sm_130", "sm_130", "", target.CUDA},
		{"cpu", "cpu", "cpu", "", target.CPU},
		{"cpu!", "cpu", "cpu", "", target.CPU},
	} {
		got, err := target.Parse(c.in)
		if err != nil {
			t.Errorf("Parse(%q): %v", c.in, err)
			continue
		}
		if got.String() != c.want || got.Arch() != c.arch || got.Features() != c.features || got.Vendor() != c.vendor || got.IsZero() {
			t.Errorf("Parse(%q) = %s: %q %q %q", c.in, got, got.Vendor(), got.Arch(), got.Features())
		}
	}
}

func TestParseUnknown(t *testing.T) {
	for in, nearest := range map[string]string{
		"gfx1300": "gfx1200", "gfx943": "gfx942", "gfx952": "gfx950", "gfx90b": "gfx90a", "gfx1104": "gfx1103",
		"gfx9999": "gfx909", "sm_91": "sm_90", "sm_90f": "sm_90a", "sm_122": "sm_121", "gfx943:xnack-": "gfx942",
	} {
		_, err := target.Parse(in)
		var unknown *target.UnknownError
		if !errors.As(err, &unknown) || unknown.Nearest != nearest || unknown.Name != in {
			t.Errorf("Parse(%q): %v, want nearest %s", in, err, nearest)
			continue
		}
		if want := `write "` + in + `!" to try anyway`; !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not contain %s", err, want)
		}
		if _, err := target.Parse(in + "!"); err != nil {
			t.Errorf("the advice for %q does not work: %v", in, err)
		}
	}
}

func TestParseSyntax(t *testing.T) {
	for in, reason := range map[string]string{
		"":                      "empty",
		"!":                     "empty",
		"native":                "native",
		"GFX942":                "lower case",
		"SM_90":                 "lower case",
		"gfx":                   "major",
		"gfx94":                 "major",
		"gfx9420a":              "major",
		"gfx94G":                "major",
		"gfx042":                "major",
		"gfx94 2":               "major",
		"sm_":                   "compute capability",
		"sm_9":                  "compute capability",
		"sm_9.0":                "compute capability",
		"sm_90b":                "compute capability",
		"sm_090":                "compute capability",
		"sm90":                  "expected gfx942",
		"mi300":                 "expected gfx942",
		"gfx942!!":              "major",
		"gfx90a:":               "a feature is",
		"gfx90a:xnack":          "a feature is",
		"gfx90a:xnack+-":        "a feature is",
		"gfx90a:foo+":           "a feature is",
		"gfx90a:xnack+:":        "a feature is",
		"gfx90a:xnack+:xnack-":  "twice",
		"gfx90a:xnack+:xnack+!": "twice",
		"gfx1100:xnack-":        "gfx1100 has no feature xnack",
		"gfx900:sramecc+":       "gfx900 has no feature sramecc",
		"sm_90:xnack-":          "only gfx",
		"cpu:avx2+":             "only gfx",
	} {
		got, err := target.Parse(in)
		var syntax *target.SyntaxError
		if !errors.As(err, &syntax) || !strings.Contains(syntax.Reason, reason) || syntax.Input != in {
			t.Errorf("Parse(%q): %v, want a reason with %q", in, err, reason)
		}
		if !got.IsZero() {
			t.Errorf("Parse(%q) returns %v with the error", in, got)
		}
	}
}

func TestParseList(t *testing.T) {
	got, err := target.ParseList("gfx942; sm_90,gfx90a:xnack-:sramecc+,,gfx942 ,gfx90a:sramecc+:xnack-;cpu")
	want := []target.Target{must(t, "gfx942"), must(t, "sm_90"), must(t, "gfx90a:sramecc+:xnack-"), must(t, "cpu")}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, in := range []string{"", ",; ,", "gfx942,nonsense", "native"} {
		if got, err := target.ParseList(in); err == nil {
			t.Errorf("ParseList(%q) = %v", in, got)
		}
	}
}

func TestRuns(t *testing.T) {
	for _, c := range []struct {
		code, device string
		want         bool
	}{
		{"gfx942", "gfx942", true},
		{"gfx942", "gfx950", false},
		{"gfx90a", "gfx90a:sramecc+:xnack-", true},
		{"gfx90a:xnack-", "gfx90a:sramecc+:xnack-", true},
		{"gfx90a:sramecc+", "gfx90a:sramecc+:xnack-", true},
		{"gfx90a:xnack+", "gfx90a:sramecc+:xnack-", false},
		{"gfx90a:xnack-", "gfx90a", false}, // the device does not state the feature
		{"sm_90", "sm_90", true},
		{"sm_90a", "sm_90", true},
		{"sm_90", "sm_90a", true},
		{"sm_80", "sm_86", true},
		{"sm_86", "sm_80", false},
		{"sm_80", "sm_90", false},
		{"sm_89", "sm_90", false},
		{"sm_86", "sm_87", false}, // Tegra
		{"sm_87", "sm_89", false},
		{"sm_87", "sm_87", true},
		{"sm_100a", "sm_103", false},
		{"sm_100f", "sm_103", true},
		{"sm_103f", "sm_100", false},
		{"sm_100", "sm_120", false},
		{"cpu", "cpu", true},
		{"cpu", "gfx942", false},
		{"sm_90", "gfx942", false},
	} {
		if got := must(t, c.code).Runs(must(t, c.device)); got != c.want {
			t.Errorf("code for %s runs on %s: %t, want %t", c.code, c.device, got, c.want)
		}
	}
	var zero target.Target
	if zero.Runs(zero) || zero.Runs(must(t, "cpu")) || must(t, "cpu").Runs(zero) {
		t.Error("the zero target runs on a device")
	}
}

// TestKnown checks that each entry of the list parses, occurs once, and runs on itself.
func TestKnown(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range target.Known() {
		got := must(t, name)
		if seen[name] || got.String() != name || !got.Runs(got) {
			t.Errorf("%s: seen %t, parsed %s, runs on itself %t", name, seen[name], got, got.Runs(got))
		}
		seen[name] = true
	}
}

func TestText(t *testing.T) {
	type doc struct {
		T map[target.Target]target.Target
	}
	in := doc{map[target.Target]target.Target{
		must(t, "gfx90a:xnack-"): must(t, "gfx1300!"), must(t, "cpu"): {},
	}}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"T":{"cpu":"","gfx90a:xnack-":"gfx1300"}}`; string(b) != want {
		t.Errorf("got %s, want %s", b, want)
	}
	var out doc
	if err := json.Unmarshal(b, &out); err != nil || out.T[must(t, "gfx90a:xnack-")] != must(t, "gfx1300!") || len(out.T) != 2 {
		t.Errorf("got %v, %v", out, err)
	}
	if err := json.Unmarshal([]byte(`{"T":{"bogus":"cpu"}}`), &out); err == nil {
		t.Error("an invalid target was accepted")
	}
}

func TestWithoutFeatures(t *testing.T) {
	for in, want := range map[string]target.Target{
		"gfx90a:sramecc+:xnack-": must(t, "gfx90a"), "gfx1300!": must(t, "gfx1300!"), "sm_90a": must(t, "sm_90a"), "cpu": target.Host(),
	} {
		if got := must(t, in).WithoutFeatures(); got != want {
			t.Errorf("%s without features is %s, expected %s", in, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range append(target.Known(), "gfx90a:sramecc+:xnack-", "gfx1300!", "sm_9", "native", "gfx942;cpu", "a:b:c!") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := target.Parse(s)
		if err != nil {
			if err.Error() == "" || !got.IsZero() {
				t.Fatalf("Parse(%q) = %v, %q", s, got, err)
			}
			return
		}
		again, err := target.Parse(got.String() + "!")
		if err != nil || again != got || !got.Runs(got) {
			t.Fatalf("%q -> %v -> %v, %v", s, got, again, err)
		}
		if list, err := target.ParseList(s); err != nil || len(list) != 1 || list[0] != got {
			t.Fatalf("ParseList(%q) = %v, %v", s, list, err)
		}
	})
}
