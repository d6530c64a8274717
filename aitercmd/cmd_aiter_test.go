package aitercmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/term"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/internal/upstream"
)

// TestAIter runs aiter check and aiter import with the real hipcc on a small tree with AIter's layout, and on a changed copy.
func TestAIter(t *testing.T) {
	env := map[string]string{"HIPCC": testenv.Tool(t, "hipcc"), "PATH": os.Getenv("PATH"), "HOME": t.TempDir()}
	same := filepath.Join(testenv.Root(t), "op_tests/testdata/upstream")
	changed := t.TempDir()
	if err := os.CopyFS(changed, os.DirFS(same)); err != nil {
		t.Fatal(err)
	}
	header := filepath.Join(changed, "csrc/include/pos_encoding.h")
	text, err := os.ReadFile(header)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), "bool is_neox", "int is_neox", 1))
	if err := os.WriteFile(header, text, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		out, problems := tempFile(t), tempFile(t)
		root := newRoot(&app{program: Program{Name: aiterctl}, out: out, err: term.New(problems, problems),
			getenv: func(name string) string { return env[name] }})
		root.SetArgs(append([]string{"aiter"}, args...))
		err := root.ExecuteContext(t.Context())
		return contents(t, out), err
	}

	got, err := run("check", same, "--module", "module_pos_encoding")
	if err != nil || !strings.HasSuffix(got, ": no differences from AIter's commit e4048607 in 1 module: module_pos_encoding\n") {
		t.Errorf("check: error %v, output\n%s", err, got)
	}
	got, err = run("check", changed, "--module", "module_pos_encoding")
	want := "module_pos_encoding (module_aiter_pos_encoding): rotary_embedding_fwd: argument 7, is_neox: the type changed from bool to int\n" +
		"module_pos_encoding (module_aiter_pos_encoding): rotary_embedding_fwd: operator aiter_rotary_embedding_fwd: " +
		"argument 7, is_neox: bool, in AIter int\n"
	if err == nil || exitCode(err) != exitFailure || got != want {
		t.Errorf("check of a changed tree: error %v, output\n%s\nwant\n%s", err, got, want)
	}
	testenv.Long(t)
	got, err = run("check", changed, "--module", "module_pos_encoding", "--json")
	var report aiterCheckReport
	if jsonErr := json.Unmarshal([]byte(got), &report); jsonErr != nil || err == nil || report.OK || len(report.Differences) != 2 ||
		!slices.Equal(report.Modules, []string{"module_pos_encoding"}) || report.Differences[0].Function != "rotary_embedding_fwd" {
		t.Errorf("check --json: errors %v, %v, output\n%s", jsonErr, err, got)
	}
	if _, err = run("check", same, "--module", "module_none"); err == nil || exitCode(err) != exitUsage {
		t.Errorf("check --module module_none: error %v", err)
	}

	file := filepath.Join(t.TempDir(), "interface.toml")
	if _, err = run("import", same, "--output", file); err != nil {
		t.Fatal(err)
	}
	text, err = os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if i, err := upstream.ParseInterface(string(text)); err != nil || len(i.Modules) != 1 || len(i.Modules[0].Functions) != 2 {
		t.Errorf("import: error %v, text\n%s", err, text)
	}
	dir := filepath.Join(t.TempDir(), "tree")
	if got, err = run("import", same, "--module", "module_plain", "--tree", dir); err != nil || !strings.HasPrefix(got, "wrote 5 files in ") {
		t.Errorf("import --tree: error %v, output %s", err, got)
	}
	if _, err = run("import", same, "--module", "module_plain", "--tree", dir); err == nil || exitCode(err) != exitUsage {
		t.Errorf("import --tree to a folder with files: error %v", err)
	}
	fresh := filepath.Join(dir, "new")
	if _, err = run("import", same, "--module", "module_torch", "--tree", fresh); err == nil || exitCode(err) != exitUsage {
		t.Errorf("import --module module_torch: error %v", err)
	}
}

// TestDescribeUpstream: describe says what AIter's Python does besides an operator of a checkout.
func TestDescribeUpstream(t *testing.T) {
	for op, want := range map[string]string{
		"aiter_rotary_embedding_fwd": "\nEntry point of AIter; its Python also converts cos_cache and sin_cache to the device and the " +
			"element type of query (RotaryEmbedding.forward_old).\n",
		"aiter_topk_gating": "\nEntry point of AIter; its Python does nothing else.\n",
	} {
		env := map[string]string{"AITER_CHECKOUT": filepath.Join(testenv.Root(t), "op_tests/testdata/upstream"), "HOME": t.TempDir()}
		out, problems := tempFile(t), tempFile(t)
		root := newRoot(&app{program: Program{Name: aiterctl}, out: out, err: term.New(problems, problems),
			getenv: func(name string) string { return env[name] }})
		root.SetArgs([]string{"describe", op})
		if err := root.ExecuteContext(t.Context()); err != nil || !strings.Contains(contents(t, out), want) {
			t.Errorf("describe %s: error %v, output\n%s\nwant\n%s", op, err, contents(t, out), want)
		}
	}
}
