package opconfig_test

import (
	"syscall"
	"testing"
)

// limitMemory bounds the addresses of this process, in bytes.
func limitMemory(t *testing.T, bytes uint64) {
	t.Helper()
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: bytes, Max: bytes}); err != nil {
		t.Fatal(err)
	}
}
