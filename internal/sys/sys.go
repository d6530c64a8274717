// Package sys has the system calls that the packages of builds and of the cache share. Builds and GPU code need Linux. On
// other systems every function fails with an [*UnsupportedError], so that programs that import this module compile there.
package sys

import (
	"errors"
	"fmt"
	"runtime"
)

// UnsupportedError reports something that needs Linux. errors.Is(err, errors.ErrUnsupported) is true.
type UnsupportedError struct {
	What string // "building kernels"
	OS   string // of this program, as in runtime.GOOS
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s is not supported on %s: run the program on Linux", e.What, e.OS)
}

// Is reports whether the target is [errors.ErrUnsupported].
func (e *UnsupportedError) Is(err error) bool { return err == errors.ErrUnsupported }

// Unsupported returns an [*UnsupportedError] on systems other than Linux, else nil.
func Unsupported(what string) error { return unsupported(what, runtime.GOOS) }

func unsupported(what, goos string) error {
	if goos == "linux" {
		return nil
	}
	return &UnsupportedError{What: what, OS: goos}
}
