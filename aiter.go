// Package aiter contains the kernel sources and the configuration of this module,
// so that a program that imports package registry needs no checkout.
package aiter

import "embed"

// Sources contains config/ and csrc/, as they were when the program was built.
// Paths are relative to the project's root, with forward slashes.
//
//go:embed config csrc
var Sources embed.FS

// ModulePath is the path of this Go module.
const ModulePath = "github.com/aiter-go/aiter"
