package optests_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// TestPartsRefuse tests that code built for one element type or for some widths refuses others.
// Calls select the right code; here a changed configuration selects it by the wrong argument, and
// builds parts for the CPU too, which otherwise has the whole module.
func TestPartsRefuse(t *testing.T) {
	testenv.Long(t)
	reg := openWithConfig(t, map[string]string{
		`"-O3"`:          `"-O0"`, // compiles fast
		`argument = "x"`: `argument = "weight"`,
		"dimension = 1":  "dimension = 0",
		"define   = \"AITER_DTYPE\"\ntargets  = [\"hip\", \"cuda\"]": "define   = \"AITER_DTYPE\"",
		`targets   = ["hip", "cuda"]`:                                `targets   = ["cpu"]`,
	})
	f32 := func(shape ...int64) *tensor.Tensor { return newTensor(t, tensor.Float32, shape...) }
	f16 := func(shape ...int64) *tensor.Tensor { return newTensor(t, tensor.Float16, shape...) }
	for name, c := range map[string]struct {
		op   string
		args []any
		want string
	}{
		"narrow":       {"causal_conv1d_fwd", []any{f32(1, 3, 7), f32(1, 3, 7), f32(3, 4)}, ""},
		"middle":       {"causal_conv1d_fwd", []any{f32(1, 5, 7), f32(1, 5, 7), f32(5, 6)}, ""},
		"upper middle": {"causal_conv1d_fwd", []any{f32(1, 7, 7), f32(1, 7, 7), f32(7, 8)}, ""},
		"wide":         {"causal_conv1d_fwd", []any{f32(1, 9, 7), f32(1, 9, 7), f32(9, 33)}, ""},
		"widest":       {"causal_conv1d_fwd", []any{f32(1, 34, 7), f32(1, 34, 7), f32(34, 129)}, ""},
		"too wide, forward": {"causal_conv1d_fwd", []any{f32(1, 3, 7), f32(1, 3, 7), f32(3, 5)},
			"argument 'weight': expected a width from 1 to 4, which is all that this build holds, got shape (3, 5)"},
		"too wide for the middle, forward": {"causal_conv1d_fwd", []any{f32(1, 5, 7), f32(1, 5, 7), f32(5, 9)},
			"argument 'weight': expected a width from 5 to 6, which is all that this build holds, got shape (5, 9)"},
		"too narrow, forward": {"causal_conv1d_fwd", []any{f32(1, 9, 7), f32(1, 9, 7), f32(9, 4)},
			"argument 'weight': expected a width from 9 to 33, which is all that this build holds, got shape (9, 4)"},
		"too narrow for the widest, forward": {"causal_conv1d_fwd", []any{f32(1, 34, 7), f32(1, 34, 7), f32(34, 33)},
			"argument 'weight': expected a width of 34 or more, which is all that this build holds, got shape (34, 33)"},
		"too wide, update": {"causal_conv1d_update", []any{f32(1, 3, 1), f32(1, 3, 1), f32(1, 3, 4), f32(3, 5)},
			"argument 'weight': expected a width from 1 to 4"},
		"no width": {"causal_conv1d_fwd", []any{f32(1, 3, 7), f32(1, 3, 7), f32(3, 0)},
			"argument 'weight': expected a width of at least 1, got shape (3, 0)"},
		"other type, forward": {"causal_conv1d_fwd", []any{f16(1, 3, 7), f16(1, 3, 7), f32(3, 4)},
			"argument 'x': expected dtype float32, which is all that this build holds, got float16"},
	} {
		err := call(t.Context(), reg, c.op, c.args)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.op+": "+c.want) {
			t.Errorf("%s: got %v\nwant %s: %s", name, err, c.op, c.want)
		}
	}
}

// openWithConfig opens a registry of the project's operators with a changed configuration; words
// maps old text to new.
func openWithConfig(t *testing.T, words map[string]string) *registry.Registry {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(root, aiter.Sources); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "config/opt_compiler.toml")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for was, is := range words {
		if strings.Count(text, was) != 1 {
			t.Fatalf("the configuration has %q %d times", was, strings.Count(text, was))
		}
		text = strings.Replace(text, was, is, 1)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	reg, err := registry.Open(t.Context(), registry.Options{Root: root, CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reg.Close() })
	return reg
}
