package toolchain

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFolders resolves folders below a root like a process with that root: a link to an absolute
// path stays below the root, also if it is above the resolved folder.
func TestFolders(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "usr/lib/llvm/lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"lib": "/usr/lib", "usr/alias": "lib/llvm", "out": "../../.."} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for dir, want := range map[string]string{
		"/usr/lib":           "usr/lib",
		"/lib":               "usr/lib",
		"/lib/llvm":          "usr/lib/llvm",
		"/lib/llvm/lib":      "usr/lib/llvm/lib",
		"/usr/alias/lib":     "usr/lib/llvm/lib",
		"/usr/alias/../llvm": "usr/lib/llvm",
		"/out/usr/lib":       "usr/lib",
		"/usr/absent/x":      "usr/absent/x",
		"/":                  "",
	} {
		f := &folders{root: root}
		for range 2 { // read, then remembered
			if got := f.resolve(dir); got != filepath.Join(root, want) {
				t.Errorf("%s is %s, want %s", dir, got, filepath.Join(root, want))
			}
		}
	}
}
