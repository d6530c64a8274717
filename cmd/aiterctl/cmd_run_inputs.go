package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/tensor/npy"
)

// problem returns the inputs and outputs of the call.
func (f *runFlags) problem(op string, fl *pflag.FlagSet) (*optests.Problem, error) {
	p, err := f.makeProblem(op, fl)
	if err != nil {
		return nil, err
	}
	for _, o := range f.out {
		name, _, err := nameAndFile("out", o)
		if err != nil {
			return nil, err
		}
		if p.Tensor(name) == nil {
			return nil, usagef("--out %s: %s has no such tensor in this call; its tensors are %s", o, op, strings.Join(tensorNames(p), ", "))
		}
	}
	return p, nil
}

func (f *runFlags) makeProblem(op string, fl *pflag.FlagSet) (*optests.Problem, error) {
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
		return optests.Generate(op, c)
	}
	given := map[string]any{}
	for _, p := range f.params {
		if fl.Changed(p.Name) && len(p.given()) > 0 { // an argument of the operator that is no tensor
			given[p.Name] = p.given()[0]
		}
	}
	for _, in := range f.in {
		name, file, err := nameAndFile("in", in)
		if err != nil {
			return nil, err
		}
		if given[name] != nil {
			return nil, usagef("--in %s: %s is given twice", in, name)
		}
		if given[name], err = readTensor(file); err != nil {
			return nil, err
		}
	}
	return optests.FromTensors(op, given)
}

func nameAndFile(flag, s string) (name, file string, err error) {
	name, file, ok := strings.Cut(s, "=")
	if !ok || name == "" || file == "" {
		return "", "", usagef("--%s %q: expected NAME=FILE.npy", flag, s)
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

func readTensor(file string) (*tensor.Tensor, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read a tensor: %w", err)
	}
	defer f.Close()
	t, err := npy.Read(f)
	if err != nil {
		return nil, fmt.Errorf("read a tensor from %s: %w", file, err)
	}
	return t, nil
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
		t := got[name]
		if !slices.ContainsFunc(p.Outputs, func(o optests.Output) bool { return o.Name == name }) {
			t = p.Tensor(name)
		}
		errs = append(errs, writeFile(file, func(f *os.File) error { return npy.Write(f, t) }))
	}
	return errors.Join(errs...)
}
