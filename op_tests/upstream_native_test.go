//go:build linux

package optests_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit/schema"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// wrongNativeCalls changes sizes, types, numbers and addresses of the first case of an operator in ways that Go cannot refuse. Each
// call must end in an error that names the operator and the given value, or in a right result. It returns the number of calls that
// reached C++.
func wrongNativeCalls(t *testing.T, reg *registry.Registry, op optests.Operator, dev tensor.Device) (native int) {
	found, err := reg.Lookup(op.Name)
	if err != nil {
		t.Fatal(err)
	}
	config := upstreamConfig(t)
	decl := config[slices.IndexFunc(config, func(d *opconfig.Op) bool { return d.Name == op.Name })]
	runner := optests.Runner{Device: optests.Transfer(reg.Devices(), dev),
		Call: func(_ string, args []any) error { return found.Call(t.Context(), args...) }}
	buffer, err := tensor.New(tensor.UInt8, 1<<12)
	if err == nil {
		buffer, err = reg.Devices().Upload(t.Context(), buffer, dev)
	}
	if err != nil {
		t.Fatal(err)
	}
	// A device on which the right call fails has no right results; the test of the operator reports it.
	comparable := false
	if p, err := op.Problem(found.Schema(), op.Cases[0]); err == nil {
		results, err := runner.Run(p)
		comparable = err == nil && optests.Passed(results)
	}
	right, refused, unknown := 0, 0, 0
	for _, c := range nativeCalls(decl, op.Cases[0]) {
		results, err := []optests.Result(nil), error(nil)
		if args := emptyArgs(buffer.Storage(), decl, c); args != nil {
			err = found.Call(t.Context(), args...)
		} else if large(c) {
			continue
		} else if p := possibleProblem(found.Schema(), op, c); p == nil {
			continue
		} else {
			results, err = runCompared(runner, p)
		}
		var byOperator *registry.OperatorError
		switch {
		case errors.As(err, &byOperator) && byOperator.Kind == "RuntimeError" && !comparable:
			unknown++
		case errors.As(err, &byOperator) && byOperator.Kind == "RuntimeError":
			t.Errorf("%s: the call failed after the checks: %v", c, err)
		case errors.As(err, &byOperator):
			if text := err.Error(); !strings.HasPrefix(text, op.Name+": ") || !strings.Contains(text, "got ") {
				t.Errorf("%s: the error does not name the operator and the given value: %v", c, err)
			}
			refused++
		case errors.Is(err, errNoReference), err == nil && !comparable:
			unknown++
		case err != nil:
			if !refusal(err) {
				t.Errorf("%s: %v", c, err)
			}
		case !optests.Passed(results):
			t.Errorf("%s: wrong result: %v", c, results)
		default:
			right++
		}
	}
	t.Logf("C++ refused %d calls; %d were right, %d have no reference", refused, right, unknown)
	return refused + right + unknown
}

// refusedCall makes a call that an adapter must refuse.
func refusedCall(t *testing.T, reg *registry.Registry, c upstreamRefusal, dev tensor.Device) {
	found, err := reg.Lookup(c.op.Name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.op.Problem(found.Schema(), c.call)
	if err != nil {
		t.Fatal(err)
	}
	runner := optests.Runner{Device: optests.Transfer(reg.Devices(), dev),
		Call: func(_ string, args []any) error { return found.Call(t.Context(), args...) }}
	var byOperator *registry.OperatorError
	if _, err := runner.Run(p); !errors.As(err, &byOperator) || !strings.Contains(err.Error(), c.words) {
		t.Errorf("the error lacks %q: %v", c.words, err)
	}
}

// possibleProblem returns nil for a case whose tensors or values cannot be made: the functions that fill tensors may panic for
// sizes other than the right ones.
func possibleProblem(s schema.Schema, op optests.Operator, c optests.Call) (p *optests.Problem) {
	defer func() {
		if recover() != nil {
			p = nil
		}
	}()
	p, _ = op.Problem(s, c)
	return p
}

var errNoReference = errors.New("the reference has no result for the sizes")

// runCompared runs a problem and compares its outputs with the reference. A reference is for right sizes only: for others it may
// panic, and the error is errNoReference.
func runCompared(r optests.Runner, p *optests.Problem) (results []optests.Result, err error) {
	called := false
	call := r.Call
	r.Call = func(op string, args []any) error {
		err := call(op, args)
		called = err == nil
		return err
	}
	defer func() {
		var unfit *optests.ArgumentError
		if errors.As(err, &unfit) && called {
			err = errNoReference
		}
		if v := recover(); v != nil && called {
			err = errNoReference
		} else if v != nil {
			panic(v)
		}
	}()
	return r.Run(p)
}

// nativeCalls makes calls with shapes and types that the declaration allows, and numbers that the schema allows.
func nativeCalls(decl *opconfig.Op, right optests.Call) (list []optests.Call) {
	add := func(name string, change func(args map[string]any)) {
		c := optests.Call{Name: name, Args: maps.Clone(right.Args), Slice: right.Slice, Seed: right.Seed}
		change(c.Args)
		list = append(list, c)
	}
	names := map[string]bool{}
	for _, a := range decl.Schema.Args {
		x, ok := right.Args[a.Name].(optests.TensorArg)
		for _, dims := range decl.Args[a.Name].Shape.Alternatives {
			for _, d := range dims {
				names[dimName(d)] = true
			}
		}
		switch {
		case ok:
			for _, dt := range rightTypes(decl, a.Name) {
				if dt != x.DType {
					add(a.Name+"="+dt.String(), func(args map[string]any) { x := x; x.DType = dt; args[a.Name] = x })
				}
			}
			for _, shape := range [][]int64{{}, {1}, {0}, {2, 2, 2, 2, 2, 2, 2, 2, 2}} {
				add(fmt.Sprint(a.Name, "=", shape), func(args map[string]any) { x := x; x.Shape = shape; args[a.Name] = x })
			}
			if a.Type.Optional {
				add(a.Name+"=nil", func(args map[string]any) { args[a.Name] = nil })
			}
		case a.Type.Kind == schema.Int:
			for _, n := range []int{0, 1, -1, 3, 1000, 1 << 31, 1<<31 - 1, -1 << 31, 1 << 32, 1 << 62, -1 << 63} {
				if was, _ := right.Args[a.Name].(int); a.Name == "num_experts" && 0 < n && n < was {
					continue // no check finds the elements of topk_ids that would be too large
				}
				add(fmt.Sprint(a.Name, "=", n), func(args map[string]any) { args[a.Name] = n })
			}
		case a.Type.Kind == schema.Float:
			for _, v := range []float64{1e300, -1e300} {
				add(fmt.Sprint(a.Name, "=", v), func(args map[string]any) { args[a.Name] = v })
			}
		case a.Type.Kind == schema.Str:
			for _, v := range []string{"", "another", strings.Repeat("long ", 200)} {
				add(fmt.Sprintf("%s=%.10q", a.Name, v), func(args map[string]any) { args[a.Name] = v })
			}
		}
	}
	delete(names, "")
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if name == "..." {
			for _, lead := range [][]int64{{}, {0}, {1}, {3, 2}, {1 << 33, 0}, {1, 1, 1, 1, 1, 1, 1, 2}} {
				add(fmt.Sprint("... = ", lead), func(args map[string]any) { resize(decl, args, func(_ string, n int64) int64 { return n }, lead) })
			}
			continue
		}
		for i, to := range []func(int64) int64{
			func(int64) int64 { return 0 }, func(int64) int64 { return 1 }, func(int64) int64 { return 17 },
			func(n int64) int64 { return n - 1 }, func(n int64) int64 { return n + 1 }, func(n int64) int64 { return 2 * n },
		} {
			add(fmt.Sprint(name, " changed ", i), func(args map[string]any) {
				resize(decl, args, func(other string, n int64) int64 {
					if other == name {
						return to(n)
					}
					return n
				}, nil)
			})
		}
		add(name+" of 2^33", func(args map[string]any) { // the others are 0, so that there are no elements
			resize(decl, args, func(other string, _ int64) int64 {
				if other == name {
					return 1 << 33
				}
				return 0
			}, []int64{0})
		})
	}
	c := right
	c.Name, c.Slice = "slice", true // odd strides, and addresses that are aligned to an element only
	return slices.DeleteFunc(append(list, c), func(c optests.Call) bool {
		for _, v := range c.Args {
			if x, ok := v.(optests.TensorArg); ok && elements(x.Shape) > 1<<22 {
				return true
			}
		}
		return false
	})
}

// emptyArgs returns the arguments of a call whose tensors have large sizes but no elements, in one buffer; nil for another call.
func emptyArgs(buffer *tensor.Storage, decl *opconfig.Op, c optests.Call) (args []any) {
	large := false
	for _, a := range decl.Schema.Args {
		v, given := c.Args[a.Name]
		if x, ok := v.(optests.TensorArg); ok {
			large = large || slices.Contains(x.Shape, 1<<33)
			view, err := tensor.View(buffer, x.DType, x.Shape, nil, 0)
			if err != nil { // it has elements
				return nil
			}
			args = append(args, view)
			continue
		}
		if !given && a.Default != nil {
			v = a.Default.Any()
		}
		args = append(args, v)
	}
	if !large {
		return nil
	}
	return args
}

// large reports whether a tensor of the call has a size for which tests have no memory.
func large(c optests.Call) bool {
	for _, v := range c.Args {
		if x, ok := v.(optests.TensorArg); ok && len(x.Shape) > 0 && slices.Max(x.Shape) > 1<<20 {
			return true
		}
	}
	return false
}

func elements(shape []int64) int64 {
	if slices.Contains(shape, 0) {
		return 0
	}
	n := int64(1)
	for _, size := range shape {
		if n *= min(size, 1<<30); n > 1<<30 {
			return n
		}
	}
	return n
}

// resize changes the sizes that the declaration names, in all tensors alike. lead, if it is not nil, replaces the sizes of "...".
func resize(decl *opconfig.Op, args map[string]any, to func(name string, n int64) int64, lead []int64) {
	for name, v := range args {
		x, ok := v.(optests.TensorArg)
		if !ok {
			continue
		}
		for _, dims := range decl.Args[name].Shape.Alternatives {
			rest := 0 // the sizes of "..."
			if len(dims) > 0 && dims[0].Rest {
				rest, dims = len(x.Shape)-len(dims)+1, dims[1:]
			}
			if rest+len(dims) != len(x.Shape) {
				continue
			}
			shape := slices.Clone(x.Shape[:rest])
			if lead != nil && rest+len(dims) > len(dims) {
				shape = slices.Clone(lead)
			}
			for i, d := range dims {
				n := x.Shape[rest+i]
				if d.Name != "" {
					n = max(0, to(d.Name, n-d.Offset)+d.Offset)
				}
				shape = append(shape, n)
			}
			x.Shape = shape
			args[name] = x
			break
		}
	}
}

func dimName(d schema.Dim) string {
	if d.Rest {
		return "..."
	}
	return d.Name
}

// wrongUpstreamCalls replaces each argument of correct calls by wrong ones. Each call must fail and must not end the process.
func wrongUpstreamCalls(t *testing.T, reg *registry.Registry, dev tensor.Device) {
	upload := func(dt tensor.DType, shape ...int64) *tensor.Tensor {
		x, err := tensor.New(dt, shape...)
		if err == nil {
			x, err = reg.Devices().Upload(t.Context(), x, dev)
		}
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	op, err := reg.Lookup("aiter_rotary_embedding_fwd")
	if err != nil {
		t.Fatal(err)
	}
	f := tensor.Float32
	right := []any{upload(tensor.Int64, 3), upload(f, 3, 32), upload(f, 3, 16), 16, upload(f, 8, 6), upload(f, 8, 6), true, false}
	if err := op.Call(t.Context(), right...); err != nil {
		t.Fatal(err)
	}
	host, err := tensor.New(f, 3, 32)
	if err != nil {
		t.Fatal(err)
	}
	wrong := []any{nil, host, upload(f, 3), upload(f, 3, 32, 1), upload(f, 2, 31), upload(tensor.Int32, 3, 32), upload(tensor.Bool, 3, 16),
		upload(f), "text", -1, 0, 1.5, 5}
	calls := 0
	for i := range right {
		for _, v := range wrong {
			switch v.(type) {
			case int, float64:
				if i > 5 || i == 3 && v == 1.5 { // an int is a bool
					continue
				}
			}
			args := slices.Clone(right)
			args[i] = v
			if err := op.Call(t.Context(), args...); err == nil {
				t.Errorf("argument %d is %v: no error", i, v)
			}
			calls++
		}
		if err := op.Call(t.Context(), right[:i]...); err == nil {
			t.Errorf("%d arguments: no error", i)
		}
	}
	if calls < 90 {
		t.Errorf("made %d calls, want 90 or more", calls)
	}
}
