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
// in one run.
func (u *unit) wrongTarget(object string) string {
	if !u.pass.MakesDeviceCode() {
		return ""
	}
	found, err := u.codeTarget(object)
	if err != nil {
		return fmt.Sprintf("it exited without an error, but the target of its output cannot be read (%v), expected a code object for %s; %s%s",
			err, u.req.Target, u.targetAdvice(), fullDisk(object))
	}
	if want := toolchain.CodeTarget(u.req.Target); found != want && !sameTarget(found, u.req.Target) {
		return fmt.Sprintf("it exited without an error, but made code for %s, expected %s; %s", found, want, u.targetAdvice())
	}
	return ""
}

// makesFatbin reports whether the unit's output is device code of NVIDIA.
func (u *unit) makesFatbin() bool {
	return u.pass.MakesDeviceCode() && u.req.Target.Vendor() == target.CUDA
}

// codeTarget returns the target of device code.
func (u *unit) codeTarget(object string) (string, error) {
	if u.makesFatbin() {
		data, err := os.ReadFile(object)
		if err != nil {
			return "", err
		}
		code, err := codeobject.Fatbin(data)
		return code.Target, err
	}
	f, err := os.Open(object)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return codeobject.TargetOf(f)
}

// targetAdvice returns a hint about the possible causes of a wrong target.
func (u *unit) targetAdvice() string {
	if u.req.Target.Vendor() == target.CUDA {
		return fmt.Sprintf("check whether %s is a wrapper that changes -gencode, and whether flags of %s in the configuration set "+
			"an architecture", u.tc.Compiler, u.req.Module)
	}
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
