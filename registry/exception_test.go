//go:build linux

package registry_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/registry"
)

const throwingConfig = `
[module.module_throwing]
defaults = false
include = ["csrc/include"]
[[module.module_throwing.source]]
path = "csrc/throwing.cpp"
[[module.module_throwing.op]]
name = "throws"
schema = "(int what) -> ()"
`

const throwingSource = `
#include <stdexcept>
#include <aiter/ffi.h>
namespace {
using namespace aiter;
Status throws(int64_t what) {
  if (what == 1) throw std::runtime_error("no kernel for this");
  if (what == 2) throw 7;
  if (what == 3) throw std::runtime_error("cannot read 'x.bin'");
  return Status();
}
}
AITER_EXPORT(throws, throws, arg("what"))
`

// An operator's exception becomes an error. Uncaught, it would end the process.
func TestExceptions(t *testing.T) {
	root := sourceTree(t, throwingConfig, map[string]string{"csrc/throwing.cpp": throwingSource})
	op, err := open(t, registry.Options{Root: root}).Lookup("throws")
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range []string{"", "throws: exception: no kernel for this", "throws: an exception that is not a std::exception",
		"throws: exception: cannot read 'x.bin'"} {
		err := op.Call(t.Context(), what)
		if want == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		var failed *registry.OperatorError
		if !errors.As(err, &failed) || failed.Kind != "RuntimeError" || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: got %v, want a RuntimeError with %q", what, err, want)
		} else if failed.Arg != "" || failed.About != "" {
			t.Errorf("%d: %v: the error has the argument %q and the property %q, want none", what, err, failed.Arg, failed.About)
		}
	}
}
