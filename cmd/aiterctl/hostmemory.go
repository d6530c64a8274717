package main

import (
	"os"
	"runtime/debug"

	"github.com/aiter-go/aiter/internal/slots"
	optests "github.com/aiter-go/aiter/op_tests"
)

// hostMemory refuses what does not fit into the host's memory: to ask for more
// would end the program, or others.
type hostMemory struct{ bytes int64 } // that can be had, 0 when nobody knows

func availableMemory() hostMemory { return hostMemory{slots.AvailableMemory()} }

// check returns a usage error when there is too little memory for the case, and
// the errors of [optests.HostBytes].
func (m hostMemory) check(op string, c optests.Case, use optests.Use) error {
	need, err := optests.HostBytes(op, c, use)
	if err != nil {
		return err
	}
	if m.bytes > 0 && need > m.bytes {
		return usagef("%s %s needs at least %d bytes of the host's memory (%s), and %d (%s) can be had; give smaller sizes",
			op, c, need, sizeWords(need), m.bytes, sizeWords(m.bytes))
	}
	if m.bytes > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(m.bytes) // what is not used any more is not to be what does not fit
	}
	return nil
}
