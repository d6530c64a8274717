package jit

import (
	"fmt"
	"os"

	"github.com/aiter-go/aiter/internal/codeobject"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// wrongTarget returns an error text for an object of another target than the unit's, "" if
// the target is right. The link labels the code with the unit's target, and a GPU selects
// code by that label.
//
// It checks device passes only. In a unit that is compiled in one pass the compiler labels
// the bundles. NVIDIA's driver checks code itself.
func (u *unit) wrongTarget(object string) string {
	if u.pass != toolchain.Device {
		return ""
	}
	f, err := os.Open(object)
	if err != nil {
		return fmt.Sprintf("it ended well but its object cannot be read: %v", err)
	}
	defer f.Close()
	found, err := codeobject.MadeFor(f)
	if err != nil {
		return fmt.Sprintf("it ended well but what it wrote is no code object that says its target (%v), expected one for %s; %s", err, u.req.Target, u.targetAdvice())
	}
	if !sameTarget(found, u.req.Target) {
		return fmt.Sprintf("it ended well but made code for %s, expected %s; %s", found, u.req.Target, u.targetAdvice())
	}
	return ""
}

// targetAdvice returns a hint about what may have changed the target.
func (u *unit) targetAdvice() string {
	return fmt.Sprintf("look whether %s is a wrapper that changes --offload-arch, and whether flags of %s in the configuration or a configuration file of the compiler set an architecture (--offload-arch, -mcpu)", u.tc.Compiler, u.req.Module)
}

// sameTarget reports whether the target in a code object equals the requested one, with the
// same features in any order. A feature that only the code states would exclude devices that
// were requested; a feature that only the request states would include devices on which the
// code must not run.
func sameTarget(made string, asked target.Target) bool {
	got, err := target.Parse(made + "!") // the compiler may know more of them
	return err == nil && got == asked
}
