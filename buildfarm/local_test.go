package buildfarm_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// countingCompiler is a compiler that writes how many of its processes run at a time to a file in the folder of the script.
const countingCompiler = `#!/bin/sh
for arg; do
  if [ "$arg" = -MF ]; then # no query
    dir=%[1]s
    : >"$dir/run.$$"
    ls "$dir" | grep -c '^run' >>"$dir/counts"
    sleep 0.5
    %[2]s "$@"
    status=$?
    rm "$dir/run.$$"
    exit $status
  fi
done
exec %[2]s "$@"
`

// TestCompilesHereAreLimited builds a module of twelve sources for a farm that does not run. At most four compilers run at a time on
// this machine, although the client may start sixteen.
func TestCompilesHereAreLimited(t *testing.T) {
	const sources, most = 12, 4
	dir := t.TempDir()
	real, err := exec.LookPath("c++")
	if err != nil {
		t.Fatal(err)
	}
	compiler := filepath.Join(dir, "c++")
	if err := os.WriteFile(compiler, fmt.Appendf(nil, countingCompiler, dir, real), 0o755); err != nil {
		t.Fatal(err)
	}
	x := newClient(t, "grpc://127.0.0.1:1")
	x.env["CXX"], x.env["MAX_JOBS"] = compiler, "16"
	x.tree.Config(fmt.Sprintf(partsConfig, "cpu", "cpp"))
	for i := range sources {
		text := fmt.Sprintf("int part_%[1]d() { return %[1]d; }\n", i)
		if i == 0 {
			text += "extern \"C\" int __tvm_ffi_parts(void*, void*, int, void*) { return 0; }\n"
		}
		x.tree.Write(fmt.Sprintf("generated/part_%d.cpp", i), text)
	}
	x.buildAll("module_parts", "cpu")
	data, err := os.ReadFile(filepath.Join(dir, "counts"))
	if err != nil {
		t.Fatal(err)
	}
	counts, highest := strings.Fields(string(data)), 0
	for _, text := range counts {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		highest = max(highest, n)
	}
	if len(counts) != sources || highest > most || highest < 2 {
		t.Errorf("%d compilers ran, up to %d at a time; want %d, at most %d and at least 2 at a time", len(counts), highest, sources, most)
	}
	t.Logf("up to %d compilers at a time", highest)
}
