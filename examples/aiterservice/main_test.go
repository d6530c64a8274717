//go:build linux

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.WithSharedCache(m.Run)) }

// TestSmallTree looks up the operators of a small tree with AIter's layout, and builds a set of them.
func TestSmallTree(t *testing.T) {
	testenv.SkipRace(t)
	t.Setenv("HIPCC", testenv.Tool(t, "hipcc"))
	t.Setenv("AITER_CHECKOUT", filepath.Join(testenv.Root(t), "op_tests/testdata/upstream"))
	found, err := lookUp(t.Context(), needs(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	var names []string
	for _, f := range found {
		if f.module != "" {
			names = append(names, f.name()+" "+f.module+" "+strings.Join(f.vendors, ","))
		}
		reasons[f.function] = f.reason
	}
	want := []string{"aiter_rotary_embedding_fwd module_aiter_pos_encoding hip"}
	if !slices.Equal(names, want) {
		t.Errorf("found %q, want %q", names, want)
	}
	for function, reason := range map[string]string{
		"_topk_softmax": "the checkout lacks the sources of module_aiter_moe_asm",
		"all_reduce":    "the checkout lacks the sources of module_aiter_custom_all_reduce",
		"mla_reduce_v1": "no module of the checkout has mla_reduce_v1",
	} {
		if reasons[function] != reason {
			t.Errorf("%s: %q, want %q", function, reasons[function], reason)
		}
	}

	folder := filepath.Join(t.TempDir(), "set")
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--arch", "gfx942", "--output", folder}, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	var libraries []string
	err = filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if strings.HasPrefix(e.Name(), "module_") && filepath.Ext(path) == ".so" {
			libraries = append(libraries, e.Name())
		}
		return err
	})
	slices.Sort(libraries)
	if err != nil || !slices.Equal(libraries, []string{"module_aiter_ffi.so", "module_aiter_pos_encoding.so"}) {
		t.Errorf("the set has %q, %v", libraries, err)
	}
	for _, line := range []string{"\noperators found: 1 of 37, modules: 1\n", "\nMODULE", "\nlibraries: 1, "} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("the report lacks %q:\n%s", line, &out)
		}
	}
}

// TestMissingReason has a function of AIter for each reason for which an operator can be missing.
func TestMissingReason(t *testing.T) {
	t.Setenv("AITER_CHECKOUT", filepath.Join(testenv.Root(t), "op_tests/testdata/upstream"))
	modules, err := checkoutModules(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	for function, want := range map[string]string{
		"with_torch": "module_torch: torch",
		"scaled":     "module_plain: no adapter, although its state is possible",
		"absent":     "no module of the checkout has absent",
	} {
		if got := missingReason(modules, function); got != want {
			t.Errorf("%s: %q, want %q", function, got, want)
		}
	}
}

func TestNoCheckout(t *testing.T) {
	t.Setenv("AITER_CHECKOUT", "")
	if err := run(t.Context(), nil, t.Output(), t.Output()); err == nil || !strings.Contains(err.Error(), "AITER_CHECKOUT is not set") {
		t.Errorf("got %v", err)
	}
}
