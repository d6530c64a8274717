package aitercmd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/term"
	"github.com/aiter-go/aiter/internal/testenv"
)

// TestInspect inspects a library that the real hipcc links, for two targets.
func TestInspect(t *testing.T) {
	hipcc := testenv.Tool(t, "hipcc")
	library := filepath.Join(t.TempDir(), "tiny.so")
	source := filepath.Join(testenv.Root(t), "internal", "codeobject", "testdata", "tiny.hip")
	cmd := exec.Command(hipcc, "-nogpuinc", "-O2", "-fPIC", "-shared", "--offload-arch=gfx90a:xnack-", "--offload-arch=gfx1030",
		source, "-o", library)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, problems := tempFile(t), tempFile(t)
	env := map[string]string{"HIPCC": hipcc, "PATH": os.Getenv("PATH"), "HOME": t.TempDir()}
	root := newRoot(&app{program: Program{Name: aiterctl}, out: out, err: term.New(problems, problems),
		getenv: func(name string) string { return env[name] }})
	root.SetArgs([]string{"inspect", library, "--kernel", "^stream$", "--json"})
	if err := root.ExecuteContext(context.Background()); err != nil {
		t.Fatal(err)
	}
	var got struct{ Kernels []kernelItem }
	if err := json.Unmarshal([]byte(contents(t, out)), &got); err != nil {
		t.Fatal(err)
	}
	waves := map[string]int{"gfx90a:xnack-": 8, "gfx1030": 16}
	if len(got.Kernels) != len(waves) {
		t.Fatalf("%d kernels, want one for each of 2 targets: %s", len(got.Kernels), contents(t, out))
	}
	for _, k := range got.Kernels {
		if k.Waves != waves[k.Target] || k.VGPRs == 0 || k.VGPRSpills != 0 || k.Scratch != 0 || k.Kernarg != 20 {
			t.Errorf("%+v", k)
		}
		if k.Loop == nil || k.Loop.Whole || k.Loop.WideLoads != 1 || k.Loop.WideStores != 1 {
			t.Errorf("%s: loop %+v, want one 16-byte load and store; %s", k.Target, k.Loop, contents(t, problems))
		}
	}
	t.Run("table", func(t *testing.T) {
		if err := out.Truncate(0); err != nil {
			t.Fatal(err)
		}
		root.SetArgs([]string{"inspect", library, "--kernel", "stack", "--json=false"})
		if err := root.ExecuteContext(context.Background()); err != nil {
			t.Fatal(err)
		}
		if text := strings.TrimLeft(contents(t, out), "\x00"); strings.Count(text, "\n") != 6 || !strings.Contains(text, "(no loop)") {
			t.Errorf("table:\n%s", text)
		}
	})
}

// TestInspectCUDA inspects libraries that the real nvcc links, with plain and with compressed code, for two targets.
func TestInspectCUDA(t *testing.T) {
	testenv.Long(t)
	nvcc, cuobjdump := testenv.Tool(t, "nvcc"), testenv.Tool(t, "cuobjdump")
	source := filepath.Join(testenv.Root(t), "internal", "codeobject", "testdata", "tiny.cu")
	env := map[string]string{"CUOBJDUMP": cuobjdump, "PATH": os.Getenv("PATH"), "HOME": t.TempDir()}
	for _, compress := range []string{"--no-compress", "-Xfatbin=-compress-all"} {
		library := filepath.Join(t.TempDir(), "tiny.so")
		cmd := exec.Command(nvcc, "-O2", "-Xcompiler=-fPIC", "-shared", "-cudart=none", compress,
			"-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90a,code=sm_90a", "-o", library, source)
		cmd.Dir = t.TempDir()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		inspect := func(args ...string) string {
			out, problems := tempFile(t), tempFile(t)
			root := newRoot(&app{out: out, err: term.New(problems, problems), getenv: func(name string) string { return env[name] }})
			root.SetArgs(append([]string{"inspect", library}, args...))
			if err := root.ExecuteContext(context.Background()); err != nil {
				t.Fatal(err)
			}
			if text := contents(t, problems); text != "" {
				t.Errorf("%v: %s", args, text)
			}
			return contents(t, out)
		}
		var got struct{ Kernels []kernelItem }
		if err := json.Unmarshal([]byte(inspect("--json")), &got); err != nil {
			t.Fatal(err)
		}
		targets := map[string]int{}
		for _, k := range got.Kernels {
			targets[k.Target]++
			stack := k.Kernel == "stack"
			if k.VGPRs < 8 || k.Waves == 0 || k.Wave != 32 || (k.Scratch == 4000) != stack || (k.LDS >= 1024) != stack || k.Loop == nil {
				t.Errorf("%s: %+v", compress, k)
			} else if !stack && (k.Loop.Whole || k.Loop.WideLoads != 1 || k.Loop.WideStores != 1) || stack && k.All.Scratch != 2 {
				t.Errorf("%s: %s: loop %+v, all %+v", compress, k.Kernel, k.Loop, k.All)
			}
		}
		if len(targets) != 2 || targets["sm_80"] != 2 || targets["sm_90a"] != 2 {
			t.Errorf("%s: kernels %v, want two for sm_80 and two for sm_90a", compress, targets)
		}
		var mine []string
		for _, k := range got.Kernels {
			mine = append(mine, fmt.Sprintf("REG:%d STACK:%d SHARED:%d", k.VGPRs, k.Scratch, k.LDS))
		}
		theirs, err := exec.Command(cuobjdump, "-res-usage", library).Output()
		if err != nil {
			t.Fatal(err)
		}
		usage := regexp.MustCompile(`REG:\d+ STACK:\d+ SHARED:\d+`).FindAllString(string(theirs), -1)
		slices.Sort(mine)
		slices.Sort(usage)
		if !slices.Equal(mine, usage) {
			t.Errorf("%s: %v, cuobjdump prints %v", compress, mine, usage)
		}
		text := inspect("--sort", "spills")
		for _, want := range []string{
			"sm_80: 2 kernels; 1 with local memory (spills or arrays); warps a scheduler: ",
			"TARGET  WARPS  LIMITED BY  REGISTERS  LOCAL  SHARED  LOOP",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is missing:\n%s", want, text)
			}
		}
		if rows := strings.Split(text, "\n"); !strings.HasSuffix(rows[4], "stack") || !strings.HasSuffix(rows[7], "stream") {
			t.Errorf("--sort spills:\n%s", text)
		}
		if text := inspect("--kernel", "stream", "--asm"); !strings.Contains(text, "; stream for sm_90a\n") ||
			!strings.Contains(text, "  @P0 EXIT\n") ||
			!strings.Contains(text, "  LDG.E.128 ") || strings.Contains(text, "STL") {
			t.Errorf("--asm:\n%s", text)
		}
	}
}

// The worst kernel is first, long names are shortened to the width of the line, and the last line counts the kernels left out.
func TestInspectTable(t *testing.T) {
	out := tempFile(t)
	a := &app{out: out, width: 70}
	list := []kernelItem{{Kernel: "fast", Target: "gfx942", Waves: 8}, {Kernel: "slow", Target: "gfx942", Waves: 2, VGPRs: 200}}
	list = append(list, kernelItem{Kernel: strings.Repeat("long", 30), Target: "gfx942", Waves: 8, VGPRSpills: 3})
	for range maxKernels {
		list = append(list, kernelItem{Kernel: "same", Target: "gfx942", Waves: 4})
	}
	sortKernels(list, "worst")
	if err := a.printKernels(&inspectFlags{}, list); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(contents(t, out), "\n")
	want := "gfx942: 23 kernels; 1 with spills, 0 with scratch memory; waves a SIMD unit: 2 to 8, median 4"
	if lines[0] != want || !strings.HasSuffix(lines[3], "…") || !strings.HasSuffix(lines[4], "slow") || len(lines) != 26 ||
		lines[24] != "3 kernels more: --all prints them" {
		t.Errorf("%q", lines)
	}
	for _, line := range lines[2:] {
		if n := len([]rune(line)); n > a.width {
			t.Errorf("a line of %d characters: %s", n, line)
		}
	}
}

func tempFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func contents(t *testing.T, f *os.File) string {
	t.Helper()
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
