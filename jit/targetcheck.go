package jit

import (
	"fmt"
	"os"

	"github.com/aiter-go/aiter/internal/codeobject"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// wrongTarget says what is wrong with an object that was made for another target than the
// unit's, "" when nothing is: the link names the code after the target that was asked for,
// and a GPU would run it, or find none, by that name.
//
// Looked at is what a device pass makes. A unit that is compiled whole has bundles that the
// compiler itself has named, several where a flag of the module asks for more targets, and
// compressed if it likes: they say what they are. NVIDIA's driver looks for itself.
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
		return fmt.Sprintf("it ended well but what it wrote is no code object that says its target (%v), expected one for %s; %s", err, u.target, u.targetAdvice())
	}
	if !sameTarget(found, u.target) {
		return fmt.Sprintf("it ended well but made code for %s, expected %s; %s", found, u.target, u.targetAdvice())
	}
	return ""
}

// targetAdvice says where to look for who changed the target.
func (u *unit) targetAdvice() string {
	return fmt.Sprintf("look whether %s is a wrapper that changes --offload-arch, and whether flags of %s in the configuration or a configuration file of the compiler set an architecture (--offload-arch, -mcpu)", u.tc.Compiler, u.module)
}

// sameTarget says whether code that was made for a target, as the compiler wrote it, is what
// was asked for: the same features, in any order. A feature that neither states may be either
// way; one that only the code states would leave out devices that were asked for, and the
// other way round it would run where it must not.
func sameTarget(made string, asked target.Target) bool {
	got, err := target.Parse(made + "!") // the compiler may know more of them
	return err == nil && got == asked
}
