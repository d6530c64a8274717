// Command aiterctl builds GPU operators ahead of time, manages the kernel cache, and
// runs and checks operators.
package main

import "github.com/aiter-go/aiter/aitercmd"

// version and revision are set by the linker for releases (-ldflags "-X main.version=...").
var version, revision string

func main() {
	aitercmd.Main(aitercmd.Program{Name: "aiterctl", Version: version, Revision: revision})
}
