package fleet

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

// maxGrowth is the limit of the bytes by which this package may enlarge a program.
const maxGrowth = 7_000_000

const (
	withoutFleet = `package main

import (
	"context"

	"github.com/aiter-go/aiter/registry"
)

func main() {
	_, err := registry.Open(context.Background(), registry.Options{})
	println(err)
}
`
	// It uses what aiterctl uses.
	withFleet = `package main

import (
	"context"

	"github.com/aiter-go/aiter/fleet"
	"github.com/aiter-go/aiter/registry"
)

func main() {
	ctx := context.Background()
	_, err := registry.Open(ctx, registry.Options{Remote: fleet.Open})
	o, err1 := fleet.FromEnvironment(nil)
	ref, err2 := fleet.ParseReference("")
	signer, err3 := fleet.LoadSigner("")
	_, err4 := fleet.Push(ctx, ref, nil, signer, o)
	_, err5 := fleet.Warm(ctx, ref, nil, nil, o)
	_, err6 := fleet.Copy(ctx, ref, nil, nil, o)
	_, err7 := fleet.Inspect(ctx, ref, o)
	println(err, err1, err2, err3, err4, err5, err6, err7, fleet.ReadState(nil, nil).Reference)
}
`
)

// TestProgramSize builds a program with this package and one without it.
func TestProgramSize(t *testing.T) {
	testenv.Long(t)
	root, dir := testenv.Root(t), t.TempDir()
	size := func(name, text string) int64 {
		source := filepath.Join(dir, name+".go")
		at := filepath.Join(root, "fleet", "size"+name, "main.go") // exists for this build only
		overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{at: source}})
		if err != nil {
			t.Fatal(err)
		}
		list, program := filepath.Join(dir, name+".json"), filepath.Join(dir, name)
		for path, data := range map[string][]byte{source: []byte(text), list: overlay} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("go", "build", "-overlay", list, "-o", program, "./fleet/size"+name)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		info, err := os.Stat(program)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	without, with := size("without", withoutFleet), size("with", withFleet)
	t.Logf("%d bytes without this package, %d more with it", without, with-without)
	if with-without > maxGrowth {
		t.Errorf("the package enlarges a program by %d bytes, want at most %d", with-without, maxGrowth)
	}
}
