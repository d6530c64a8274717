package aitercmd

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/tensor/npy"
	"github.com/aiter-go/aiter/tensor/safetensors"
)

// problem returns the inputs and outputs of the call.
func (f *runFlags) problem(a *app, cmd *cobra.Command, op *registry.Op) (p *optests.Problem, err error) {
	bySchema := f.bySchema(a, op.Name())
	if bySchema {
		if err := f.checkBySchema(a, cmd, op.Name()); err != nil {
			return nil, err
		}
	}
	switch {
	case !bySchema:
		p, err = f.makeProblem(a.family(), cmd.Flags())
	case a.listed(op.Name()) && len(f.in)+len(f.args) == 0:
		p, err = f.listedProblem(a, op.Name())
	case len(f.names) > 0:
		return nil, usagef("--case contradicts --in and --arg; leave out one of them")
	default:
		p, err = f.schemaProblem(a, op)
	}
	if err != nil {
		return nil, err
	}
	for _, o := range f.out {
		name, _, err := nameAndFile("out", o)
		if err != nil {
			return nil, err
		}
		if name != "" && p.Tensor(name) == nil {
			return nil, usagef("--out %s: %s has no such tensor in this call; its tensors are %s", o, op.Name(), strings.Join(tensorNames(p), ", "))
		}
	}
	return p, nil
}

// listedProblem makes the problem of a case that the operator lists: the case of --case, else the first one.
func (f *runFlags) listedProblem(a *app, name string) (*optests.Problem, error) {
	op, err := a.declaration(name)
	if err != nil {
		return nil, err
	}
	list := op.Configs()
	if len(f.names) > 0 {
		if list, err = pickCases(list, f.names); err != nil {
			return nil, err
		}
	}
	flags := caseFlags{seed: f.seed}
	if list, err = flags.expand(op, list[:min(len(list), 1)], optests.ForComparison); err != nil {
		return nil, err
	}
	return op.Generate(list[0].Case)
}

func (f *runFlags) makeProblem(op optests.Declaration, fl *pflag.FlagSet) (*optests.Problem, error) {
	if len(f.in) == 0 {
		c, err := f.testCase(op)
		if err != nil {
			return nil, err
		}
		use := optests.ForCalls
		if f.verify {
			use = optests.ForComparison
		}
		if err := availableMemory().check(op, c, use); err != nil {
			return nil, err
		}
		return op.Generate(c)
	}
	given, err := f.readInputs()
	if err != nil {
		return nil, err
	}
	for _, p := range f.params {
		if fl.Changed(p.Name) && len(p.given()) > 0 { // an argument of the operator that is not a tensor
			given[p.Name] = p.given()[0]
		}
	}
	return op.FromTensors(given)
}

const tensorsExt = ".safetensors"

// nameAndFile splits NAME=FILE. The name is "" for a file of several tensors.
func nameAndFile(flag, s string) (name, file string, err error) {
	name, file, ok := strings.Cut(s, "=")
	if !ok && strings.HasSuffix(s, tensorsExt) {
		return "", s, nil
	}
	if !ok || name == "" || file == "" {
		return "", "", usagef("--%s %q: expected NAME=FILE.npy or FILE.safetensors", flag, s)
	}
	return name, file, nil
}

func tensorNames(p *optests.Problem) []string {
	var names []string
	for _, name := range p.ArgNames {
		if p.Tensor(name) != nil {
			names = append(names, name)
		}
	}
	return names
}

// readTensors reads the tensors of an --in, by argument name.
func readTensors(in string) (map[string]*tensor.Tensor, error) {
	name, file, err := nameAndFile("in", in)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read a tensor: %w", err)
	}
	defer f.Close()
	if !strings.HasSuffix(file, tensorsExt) {
		t, err := npy.Read(f)
		if err != nil {
			return nil, fmt.Errorf("read a tensor from %s: %w", file, err)
		}
		return map[string]*tensor.Tensor{name: t}, nil
	}
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read tensors: %w", err)
	}
	all, err := safetensors.Read(f, info.Size())
	if err != nil || name == "" {
		return all, inFile(file, err)
	}
	if all[name] == nil {
		return nil, usagef("--in %s: the file has no tensor %s; its tensors are %s", in, name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	return map[string]*tensor.Tensor{name: all[name]}, nil
}

func inFile(file string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read tensors from %s: %w", file, err)
}

// writeOutputs writes the tensors of --out: outputs as the operator wrote them, other
// arguments as they were given.
func (f *runFlags) writeOutputs(p *optests.Problem, got map[string]*tensor.Tensor) error {
	var errs []error
	for _, o := range f.out {
		name, file, err := nameAndFile("out", o)
		if err != nil {
			return err
		}
		tensors := got
		if name != "" {
			tensors = map[string]*tensor.Tensor{name: cmp.Or(got[name], p.Tensor(name))}
		}
		write := func(f *os.File) error { return safetensors.Write(f, tensors) }
		if !strings.HasSuffix(file, tensorsExt) {
			write = func(f *os.File) error { return npy.Write(f, tensors[name]) }
		}
		errs = append(errs, writeFile(file, write))
	}
	return errors.Join(errs...)
}
