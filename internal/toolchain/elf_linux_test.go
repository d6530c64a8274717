package toolchain

import (
	"os"
	"path/filepath"
	"testing"
)

// TestELFFileThatAppears checks that a session does not remember that a file could not be read.
func TestELFFileThatAppears(t *testing.T) {
	s, program := (&Finder{}).Session(), filepath.Join(t.TempDir(), "program")
	if f := s.elf(program); f.err == nil {
		t.Fatal("a missing file was read")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Link(self, program); err != nil {
		write(t, program, string(read(t, self)), 0o755)
	}
	if f := s.elf(program); f.err != nil {
		t.Error(f.err)
	}
}
