package jit

import (
	"errors"
	"testing"

	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// An error that is the same for several requests is one error that names them.
func TestFailuresOnce(t *testing.T) {
	missing := &toolchain.NotFoundError{Vendor: target.CPU}
	result := func(module string, err error) Result {
		return Result{Request: Request{Module: module, Target: target.Host()}, Err: err}
	}
	err := joinFailures([]Result{result("module_a", missing), result("module_b", missing), {}, result("module_c", errors.New("other"))})
	want := "build of module_a for cpu, module_b for cpu: " + missing.Error() + "\nbuild of module_c for cpu: other"
	if err == nil || err.Error() != want || !errors.As(err, new(*toolchain.NotFoundError)) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if joinFailures([]Result{{}}) != nil {
		t.Error("a success counts as a failure")
	}
}
