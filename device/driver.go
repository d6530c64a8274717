package device

import (
	"os"
	"strings"
	"unsafe"
)

// callVersion calls a vendor's function that writes a version number and returns the number. It returns 0 if the library does not
// have the function, or if the call fails.
func callVersion(v vendorAPI, r routine) int {
	var version int32
	if r.fn == 0 || check(v, r, uintptr(unsafe.Pointer(&version))) != nil {
		return 0
	}
	return int(version)
}

// withModule adds the version of a kernel module to that of its library, if /sys/module has it.
func withModule(version, module string) string {
	text, err := os.ReadFile("/sys/module/" + module + "/version")
	if err != nil {
		return version
	}
	return version + " (" + strings.TrimSpace(string(text)) + ")"
}
