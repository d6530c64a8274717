// Package aiter carries the kernel sources and the configuration inside the
// binary, so that a program which imports the registry needs no checkout.
package aiter

import "embed"

// Sources contains config/ and csrc/ as of the build of the program.
// Paths are relative to the project's root, with forward slashes.
//
//go:embed config csrc
var Sources embed.FS

// ModulePath is the path of this Go module.
const ModulePath = "github.com/aiter-go/aiter"
