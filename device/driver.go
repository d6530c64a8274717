package device

import (
	"os"
	"strings"
	"unsafe"
)

// callVersion returns the number that a vendor's function for its version writes, 0 if the library lacks it or it fails.
func callVersion(v vendorAPI, r routine) int {
	var version int32
	if r.fn == 0 || check(v, r, uintptr(unsafe.Pointer(&version))) != nil {
		return 0
	}
	return int(version)
}

// withModule adds the version of a kernel module to that of its library, if the system shows it.
func withModule(version, module string) string {
	text, err := os.ReadFile("/sys/module/" + module + "/version")
	if err != nil {
		return version
	}
	return version + " (" + strings.TrimSpace(string(text)) + ")"
}
