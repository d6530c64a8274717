// Command aiterctl builds GPU operators ahead of time, manages the kernel cache, and
// runs and checks operators.
package main

import "github.com/aiter-go/aiter/aitercmd"

func main() { aitercmd.Main() }
