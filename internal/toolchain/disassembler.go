package toolchain

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aiter-go/aiter/internal/process"
	"github.com/aiter-go/aiter/jit/target"
)

// Disassembler prints the instructions of GPU code: LLVM's objdump for AMD, cuobjdump for NVIDIA.
type Disassembler struct {
	Path string

	args    []string // before the file
	env     []string
	timeout time.Duration
}

// Disassembler finds llvm-objdump: by LLVM_OBJDUMP, in hipcc's folder, in the ROCm installation, on PATH. The error is a
// *NotFoundError with the places that were searched, or the context's.
func (f *Finder) Disassembler(ctx context.Context) (*Disassembler, error) {
	missing := &NotFoundError{Vendor: target.HIP, Tool: "disassembler", Hint: "install LLVM's llvm-objdump, or set LLVM_OBJDUMP to its path"}
	return f.disassembler(ctx, f.objdumps(), missing, "amdgcn", "-d")
}

// CUDADisassembler finds cuobjdump: by CUOBJDUMP, in nvcc's folder, in the CUDA installation, on PATH. The error is that of
// Disassembler.
func (f *Finder) CUDADisassembler(ctx context.Context) (*Disassembler, error) {
	missing := &NotFoundError{Vendor: target.CUDA, Tool: "disassembler",
		Hint: "install cuobjdump and nvdisasm of the CUDA toolkit, or set CUOBJDUMP to the path of cuobjdump"}
	return f.disassembler(ctx, f.cuobjdumps(), missing, "cuobjdump", "-sass")
}

// disassembler returns the first disassembler that runs and whose version contains a word.
func (f *Finder) disassembler(ctx context.Context, places []place, missing *NotFoundError, word string, args ...string) (*Disassembler,
	error) {
	for _, p := range places {
		if p.why == "" {
			d := &Disassembler{Path: p.path, args: args, env: baseEnviron(f.env), timeout: f.Timeout}
			if d.timeout <= 0 {
				d.timeout = DefaultTimeout
			}
			if p.why = d.whyUnable(ctx, word); p.why == "" {
				return d, nil
			}
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		missing.Looked = append(missing.Looked, p.from+": "+p.why)
		if p.last {
			break
		}
	}
	return nil, missing
}

func (f *Finder) objdumps() []place {
	const name, variable = "llvm-objdump", "LLVM_OBJDUMP"
	if want := f.env(variable); want != "" {
		return []place{f.named(variable, want)}
	}
	var all []place
	if at, err := f.locate(target.HIP); err == nil {
		bin := filepath.Dir(at.path)
		all = append(all, check("beside "+at.path, filepath.Join(bin, name)),
			check("LLVM of "+at.path, filepath.Join(bin, "..", "llvm", "bin", name)))
	}
	return append(all, f.onPath("PATH", name), check("/opt/rocm", "/opt/rocm/llvm/bin/"+name))
}

func (f *Finder) cuobjdumps() []place {
	const name, variable = "cuobjdump", "CUOBJDUMP"
	if want := f.env(variable); want != "" {
		return []place{f.named(variable, want)}
	}
	var all []place
	if at, err := f.locate(target.CUDA); err == nil {
		all = append(all, check("beside "+at.path, filepath.Join(filepath.Dir(at.path), name)))
	}
	return append(all, f.onPath("PATH", name), check("/usr/local/cuda", "/usr/local/cuda/bin/"+name))
}

// whyUnable returns the reason why its version does not contain a word, "" if it does.
func (d *Disassembler) whyUnable(ctx context.Context, word string) string {
	out, err := d.run(ctx, "/", maxAnswer, "--version")
	switch {
	case err != nil:
		return err.Error()
	case !strings.Contains(string(out), word):
		return d.Path + " does not support " + word
	}
	return ""
}

// Disassemble returns the instructions of the code object or cubin in a file. The error is a *ProbeError, or the context's.
func (d *Disassembler) Disassemble(ctx context.Context, file string) ([]byte, error) {
	return d.run(ctx, filepath.Dir(file), maxDisassembly, append(slices.Clone(d.args), file)...)
}

// maxDisassembly bounds a disassembly, in bytes. The largest of this project's code objects has 40 MB.
const maxDisassembly = 1 << 30

func (d *Disassembler) run(ctx context.Context, dir string, limit int, args ...string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	c := process.Command{
		Argv: append([]string{d.Path}, args...), Dir: dir, Env: d.env, Grace: 10 * time.Second,
		Output: &process.Buffer{Limit: limit, Strict: true}, Errors: &process.Buffer{Limit: maxAnswer},
	}
	err := c.Run(limited)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		e := &ProbeError{Command: c.Argv, Output: string(c.Errors.Bytes()), Err: err}
		if limited.Err() != nil {
			e.Timeout = d.timeout
		}
		return nil, e
	}
	return c.Output.Bytes(), nil
}
