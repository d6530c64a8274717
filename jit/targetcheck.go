package jit

import (
	"fmt"
	"os"

	"github.com/aiter-go/aiter/internal/codeobject"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// wrongTarget returns an error text for an object of another target than the unit's, "" if
// the target is right. The link labels the code with the unit's target, and HIP's runtime
// selects code by that label.
//
// It checks device passes only. The compiler itself labels the code of a unit that it compiles
// in one run. NVIDIA's driver checks the target of the code.
func (u *unit) wrongTarget(object string) string {
	if u.pass != toolchain.Device {
		return ""
	}
	f, err := os.Open(object)
	if err != nil {
		return fmt.Sprintf("it exited without an error, but its object cannot be read: %v", err)
	}
	defer f.Close()
	found, err := codeobject.TargetOf(f)
	if err != nil {
		return fmt.Sprintf("it exited without an error, but the target of its output cannot be read (%v), expected a code object for %s; %s",
			err, u.req.Target, u.targetAdvice())
	}
	if !sameTarget(found, u.req.Target) {
		return fmt.Sprintf("it exited without an error, but made code for %s, expected %s; %s", found, u.req.Target, u.targetAdvice())
	}
	return ""
}

// targetAdvice returns a hint about the possible causes of a wrong target.
func (u *unit) targetAdvice() string {
	return fmt.Sprintf("check whether %s is a wrapper that changes --offload-arch, and whether flags of %s in the configuration, "+
		"or a configuration file of the compiler, set an architecture (--offload-arch, -mcpu)", u.tc.Compiler, u.req.Module)
}

// sameTarget reports whether the target in a code object equals the requested one, with the
// same features in any order. A feature that only the code states would exclude devices that
// were requested. A feature that only the request states would include devices on which the
// code must not run.
func sameTarget(found string, want target.Target) bool {
	got, err := target.Parse(found + "!") // "!" accepts architectures that this program does not list
	return err == nil && got == want
}
