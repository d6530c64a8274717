//go:build linux

package fleet

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// TestStorage pulls to caches that cannot store the set.
func TestStorage(t *testing.T) {
	f, r := prebuilt(t), startRegistry(t)
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	rep := push(t, r.Host+"/aiter/kernels:v1", withGPU(t, f, big), "")
	pinned := "oci://" + r.Host + "/aiter/kernels@" + rep.Digest
	for _, full := range []bool{false, true} {
		n := newNode(t, f, pinned, "")
		n.env["AITER_NO_COMPILE"] = "1"
		if full {
			n.cache = filepath.Join(t.TempDir(), "small")
			if err := os.Mkdir(n.cache, 0o700); err != nil {
				t.Fatal(err)
			}
			defer testenv.Mount(t, n.cache, "-t", "tmpfs", "-o", "size=64k,mode=0700", "none")()
		} else {
			n.env["AITER_JIT_MAX_SIZE"] = "10kB"
		}
		if e, _, _, err := n.start(); err == nil || e.cause() != jit.PullStorage {
			t.Errorf("full disk %v: %v, want the cause %s", full, err, jit.PullStorage)
		}
		if left := openCache(t, n.cache).PulledNames(""); len(left) > 0 {
			t.Errorf("full disk %v: published %q", full, left)
		}
	}
}
