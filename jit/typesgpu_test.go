//go:build linux

package jit_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

// TestSignaturesOfHIP builds an operator with each type of argument and a result with hipcc, which puts signatures into the host code.
func TestSignaturesOfHIP(t *testing.T) {
	compiler := testenv.Tool(t, "hipcc")
	b := gpuFixture(t)
	if err := os.CopyFS(filepath.Join(b.root, "include/aiter"), os.DirFS("../csrc/include/aiter")); err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(withSchema(signatureSchema), "src/a.cpp", "src/k.hip", 1)
	b.write("config.toml", config)
	b.write("src/k.hip", "#include <aiter/gpu.h>\n"+signatureSource)
	res := b.buildFor("HIPCC", compiler, "gfx942")
	if res[0].Artifact.Path == "" {
		t.Error("no artifact")
	}
}
