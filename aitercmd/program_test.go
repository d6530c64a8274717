package aitercmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/aiter-go/aiter/internal/testenv"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// scaleConfig and scaleSource are a user's module with one operator: out = by * x.
const scaleConfig = `
[module.module_scale]
targets = ["cpu"]
flags.common = ["-std=c++17"]
[[module.module_scale.source]]
path = "scale.cpp"
[[module.module_scale.op]]
name = "scale"
schema = "(Tensor(a!) out, Tensor x, float by=2.0) -> ()"
args.x = { shape = "(R, C)" }
args.out = { shape = "(R, C)" }
`

const scaleSource = `
#include <aiter/ffi.h>
static aiter::Status scale(aiter::TensorView out, aiter::TensorView x, double by) {
  for (int64_t i = 0; i < x.size(0); i++)
    for (int64_t j = 0; j < x.size(1); j++)
      out.as<float>()[i * out.stride(0) + j * out.stride(1)] = float(by) * x.as<const float>()[i * x.stride(0) + j * x.stride(1)];
  return {};
}
AITER_EXPORT(scale, scale, aiter::arg("out"), aiter::arg("x"), aiter::real("by", 2))
`

// scaleProgram declares the operator scale with the reference out = times * by * x, which is right for times = 1.
func scaleProgram(times float64) Program {
	op := optests.Operator{
		Name: "scale",
		Reference: func(in optests.Inputs) map[string][]float64 {
			by, given := in.Call.Args["by"].(float64)
			if !given {
				by = 2
			}
			out := make([]float64, len(in.Values["x"]))
			for i, v := range in.Values["x"] {
				out[i] = times * by * v
			}
			return map[string][]float64{"out": out}
		},
	}
	for _, columns := range []int64{1, 16, 64} {
		x := optests.TensorArg{DType: tensor.Float32, Shape: []int64{4, columns}}
		op.Cases = append(op.Cases, optests.Call{Name: fmt.Sprint("columns ", columns), Args: map[string]any{"out": x, "x": x}})
	}
	return Program{
		Name: "scaler", Version: "v1.2.3", NoBuiltin: true, Operators: []optests.Operator{op},
		Modules: []registry.Source{{Name: "scale", Files: fstest.MapFS{
			"opt_compiler.toml": {Data: []byte(scaleConfig)}, "scale.cpp": {Data: []byte(scaleSource)},
		}}},
	}
}

// call runs a command line of a program in the shared cache of the tests.
func call(t *testing.T, p Program, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	shared, err := testenv.SharedCache()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("AITER_JIT_DIR", shared)
	var out, errs bytes.Buffer
	code = p.Run(t.Context(), args, nil, &out, &errs)
	return code, out.String(), errs.String()
}

// wantCall runs a command line and returns its standard output. The test fails if the exit code is another one, or if one of texts is
// missing in the output.
func wantCall(t *testing.T, p Program, code int, line string, texts ...string) string {
	t.Helper()
	got, out, errs := call(t, p, strings.Fields(line)...)
	if got != code {
		t.Errorf("%s: exit code %d, want %d\n%s%s", line, got, code, out, errs)
	}
	for _, text := range texts {
		if !strings.Contains(out+errs, text) {
			t.Errorf("%s: %q is missing in\n%s%s", line, text, out, errs)
		}
	}
	return out
}

func TestProgram(t *testing.T) {
	p := scaleProgram(1)
	if out := wantCall(t, p, 0, "list ops", "scale"); strings.Contains(out, "rms_norm") {
		t.Errorf("a program without the operators of aiter lists\n%s", out)
	}
	wantCall(t, p, 0, "test --arch cpu --warmup 0 --iterations 2", "scale on cpu", "columns 64  4  64  float32", "3 of 3 cases passed")
	wantCall(t, p, 0, "test scale --accuracy --arch cpu --case columns --case 64", "3 of 3 cases passed")
	wantCall(t, p, 0, "test --accuracy --arch cpu --case 64 --json", `"config": "columns 64"`, `"C": 64`, `"passed": 1`)
	wantCall(t, p, 0, "run --verify --arch cpu", "float32[4 1]", "ok")
	wantCall(t, p, 0, "run --case 16 --arch cpu --json", `"elements": 64`)
	wantCall(t, p, 0, "run --verify --arch cpu --arg x=float32[2,3]:normal --arg out=like:x --arg by=3", "ok")
	wantCall(t, p, 0, "version", "scaler v1.2.3 ")
	wantCall(t, p, 0, "help test", "scaler test scale --case NAME", "scale has the cases of its declaration", "[OP]")
	wantCall(t, p, 0, "help exit-codes", "Exit codes of scaler")
	wantCall(t, p, 0, "__complete test --case c", "columns 16")

	t.Setenv("AITER_VERIFY", "1")
	wantCall(t, p, 0, "run --case 16 --arch cpu")
	wantCall(t, scaleProgram(3), 6, "run --case 16 --arch cpu", "expected", "from the reference")
	t.Setenv("AITER_VERIFY", "")
	if list := p.references(); list["scale"].Compute == nil || list["aiter_rms_norm"].Compute == nil {
		t.Error("AITER_VERIFY has no reference of scale, or none of aiter_rms_norm")
	}
	wantCall(t, p, 2, "test --case 65",
		`scaler: --case "65": no case has this text in its name; expected one of columns 1, columns 16, columns 64`, "scaler help shows")
	wantCall(t, p, 2, "test --dtype float16", "none of these cases of scale has this type; expected float32")
	wantCall(t, p, 2, "test --dtype word", `--dtype "word": expected float32`)
	wantCall(t, p, 2, "test scael", `no reference for operator "scael"; operators with a reference: scale, `, "; scaler run calls operators ")
	wantCall(t, p, 2, "test --rows 3", "unknown flag: --rows")
	wantCall(t, p, 2, "run --case 16 --arg by=1", "--case contradicts --in and --arg")
	wantCall(t, p, 2, "run --dtype float16", "--dtype is for operators of aiter; select a case of scale with --case")
	wantCall(t, p, 2, "watch --all", "nothing to watch")
	wantCall(t, p, 2, "describe scael", "hint: scaler list ")
}

func TestProgramBench(t *testing.T) {
	p, dir := scaleProgram(1), t.TempDir()
	file := filepath.Join(dir, "before.json")
	out := wantCall(t, p, 0, "bench --arch cpu --warmup 0 --iterations 2 --json")
	var measured struct{ Rows []map[string]any }
	if err := json.Unmarshal([]byte(out), &measured); err != nil || len(measured.Rows) != 3 {
		t.Fatalf("%v\n%s", err, out)
	}
	if r := measured.Rows[1]; r["op"] != "scale" || r["dtype"] != "float32" || r["R"] != 4.0 || r["C"] != 16.0 || r["median_us"] == nil {
		t.Errorf("a row is %v", r)
	}
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	chart, page := filepath.Join(dir, "c.svg"), filepath.Join(dir, "c.html")
	wantCall(t, p, 0, "bench --arch cpu --warmup 0 --iterations 2 --chart "+chart+" --html "+page+" --compare "+file,
		"geometric mean of 3 cases")
	for _, name := range []string{chart, page} {
		if text, err := os.ReadFile(name); err != nil || !strings.Contains(string(text), "over C") {
			t.Errorf("%s: %v; want a chart over C", name, err)
		}
	}
	wantCall(t, p, 0, "bench scale --from "+file+" --csv", "op,target,dtype,R,C,median_us")
	wantCall(t, p, 2, "bench --chart "+chart+" --case 16", "a chart needs a size")
}

// Wrong results, and wrong declarations of a program, give errors.
func TestProgramFailures(t *testing.T) {
	wantCall(t, scaleProgram(1.5), exitVerify, "test --accuracy --arch cpu", "FAILED", "scaler: scale on cpu: 3 of 3 cases failed")
	wantCall(t, scaleProgram(1.5), exitVerify, "run --verify --arch cpu", "WRONG")
	twice := scaleProgram(1)
	twice.Operators = append(twice.Operators, twice.Operators[0])
	wantCall(t, twice, exitFailure, "list ops", "scaler: Program.Operators[1]: scale is declared twice")
	unnamed := scaleProgram(1)
	unnamed.Operators[0].Reference = nil
	wantCall(t, unnamed, exitFailure, "list ops", `Program.Operators[0] "scale": expected a Name and a Reference`)
	none := scaleProgram(1)
	none.Operators[0].Cases = nil
	wantCall(t, none, exitUsage, "bench --arch cpu", "scale has no cases; list some in optests.Operator.Cases")
	unknown := scaleProgram(1)
	unknown.Operators[0].Name = "scael"
	wantCall(t, unknown, exitUsage, "test", "scael", "scaler list ops")
	foreign := scaleProgram(1)
	foreign.Operators[0].Cases[1].Args["y"] = 1
	wantCall(t, foreign, exitUsage, "test", "case columns 16: scale: argument y: expected an argument of ")
}

// failingWriter returns an error for each write.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// Run returns after a failed write and after the end of its context; it does not end the process.
func TestProgramRun(t *testing.T) {
	var errs bytes.Buffer
	if code := scaleProgram(1).Run(t.Context(), []string{"list", "ops"}, nil, failingWriter{}, &errs); code != exitFailure ||
		errs.String() != "scaler: disk full\n" {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	errs.Reset()
	if code := scaleProgram(1).Run(ctx, []string{"test", "--arch", "cpu"}, nil, &bytes.Buffer{}, &errs); code == 0 ||
		!strings.Contains(errs.String(), "context canceled") {
		t.Errorf("with a canceled context: exit code %d, %q", code, errs.String())
	}
}

// watch works for a module in a folder, in a program that has aiter's modules too.
func TestProgramFolder(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"opt_compiler.toml": scaleConfig, "scale.cpp": scaleSource} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := scaleProgram(1)
	p.Modules[0].Files, p.NoBuiltin = os.DirFS(dir), false
	wantCall(t, p, 0, "list ops", "scale", "rms_norm")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := &watchedOutput{until: "scale on cpu: 3 of 3", stop: cancel}
	if code := p.Run(ctx, []string{"watch", "scale", "--arch", "cpu", "--test"}, nil, out, &out.errs); code != 0 || !out.seen {
		t.Errorf("watch: exit code %d, %s%s", code, out.text.String(), out.errs.String())
	}
}

// watchedOutput calls stop when its text contains until.
type watchedOutput struct {
	text, errs bytes.Buffer
	until      string
	stop       func()
	seen       bool
}

func (o *watchedOutput) Write(p []byte) (int, error) {
	n, err := o.text.Write(p)
	if !o.seen && strings.Contains(o.text.String(), o.until) {
		o.seen = true
		o.stop()
	}
	return n, err
}
