// Package aiter carries the kernel sources and the configuration inside the
// binary, so that a program which imports the registry needs no checkout.
package aiter

import "embed"

// Sources holds config/ and csrc/ as they stood when the program was built.
// Paths are relative to the project's root, with forward slashes.
//
//go:embed config csrc
var Sources embed.FS
