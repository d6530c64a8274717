package codeobject

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Report describes one kernel of a library.
type Report struct {
	Kernel
	Target string
	Waves  int           // a SIMD unit, 0 if the target is not known
	Limit  string        // the resource that limits them
	Loop   *Loop         // nil without a disassembly
	All    Counts        // of the whole kernel
	Code   []Instruction // of the whole kernel
}

// Disassembler returns the output of `llvm-objdump -d` for the code object in a file, or of `cuobjdump -sass` for a cubin.
type Disassembler interface {
	Disassemble(ctx context.Context, file string) ([]byte, error)
}

// Inspect reports on all kernels of a library, sorted by name. It leaves out the empty kernel of a shard if another shard has its code.
// Without a disassembler the reports have no loops. It fails with the errors of [Extract], [Object.Kernels] and the disassembler.
func Inspect(ctx context.Context, library io.ReaderAt, d Disassembler) ([]Report, error) {
	objects, err := Extract(library)
	if err != nil {
		return nil, err
	}
	var all []Report
	for _, o := range objects {
		some, err := o.inspect(ctx, d)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	most := map[[2]string]int{} // bytes of code, by target and symbol
	for _, r := range all {
		k := [2]string{r.Target, r.Symbol}
		most[k] = max(most[k], r.CodeSize)
	}
	all = slices.DeleteFunc(all, func(r Report) bool {
		return IsCUDA(r.Target) && r.CodeSize < most[[2]string{r.Target, r.Symbol}]
	})
	slices.SortFunc(all, func(a, b Report) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func (o Object) inspect(ctx context.Context, d Disassembler) ([]Report, error) {
	kernels, err := o.Kernels()
	if err != nil {
		return nil, err
	}
	code, err := o.disassemble(ctx, d)
	if err != nil {
		return nil, err
	}
	var list []Report
	for _, k := range kernels {
		r := Report{Kernel: k, Target: o.Target}
		r.Waves, r.Limit = k.WavesPerSIMD(o.Target)
		if in, ok := code[k.Symbol]; ok {
			loop := HottestLoop(in)
			r.Loop, r.All, r.Code = &loop, count(in), in
		}
		list = append(list, r)
	}
	return list, nil
}

func (o Object) disassemble(ctx context.Context, d Disassembler) (Disassembly, error) {
	if d == nil {
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "aiter-inspect-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for temporary files, in TMPDIR: %w", err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "code.o")
	if err := os.WriteFile(file, o.ELF, 0o600); err != nil {
		return nil, err
	}
	text, err := d.Disassemble(ctx, file)
	if err != nil {
		return nil, err
	}
	if IsCUDA(o.Target) {
		return ParseSASS(bytes.NewReader(text))
	}
	return ParseDisassembly(bytes.NewReader(text))
}

// IsCUDA reports whether a target is an NVIDIA GPU.
func IsCUDA(target string) bool { return strings.HasPrefix(target, "sm_") }
