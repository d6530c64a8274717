package toolchain

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/aiter-go/aiter/internal/filehash"
)

// TestFoldersWithPatternCharacters uses device libraries and a loader configuration below folders whose names
// filepath.Glob would take for patterns.
func TestFoldersWithPatternCharacters(t *testing.T) {
	for _, name := range []string{"cuda-12.4", "cuda[12.4]", "cuda*", "cuda?", `cuda\12`} {
		dir := filepath.Join(t.TempDir(), name)
		device := filepath.Join(dir, "nvvm", "libdevice")
		write(t, filepath.Join(device, "libdevice.10.bc"), "bitcode", 0o644)
		write(t, filepath.Join(device, "readme"), "text", 0o644)
		write(t, filepath.Join(dir, "ld.so.conf"), "include "+dir+"/conf.d/*.conf\n", 0o644)
		write(t, filepath.Join(dir, "conf.d", "a.conf"), "/opt/lib\n", 0o644)
		c := (&search{session: (&Finder{}).Session(), ctx: t.Context(), memo: filehash.Open(""), tc: &Toolchain{}}).collector()
		if err := c.nvcc(answer{variables: map[string]string{"NVVMIR_LIBRARY_DIR": device}}); err != nil {
			t.Fatal(err)
		}
		if err := c.digests.Wait(); err != nil {
			t.Fatal(err)
		}
		if len(c.files) != 1 || c.files[0].Path != filepath.Join(device, "libdevice.10.bc") || c.files[0].Digest == "" {
			t.Errorf("%s: files %+v, want libdevice.10.bc with its digest", name, c.files)
		}
		if dirs := c.loaderConf(filepath.Join(dir, "ld.so.conf"), 0); !slices.Equal(dirs, []string{"/opt/lib"}) {
			t.Errorf("%s: folders of the loader %v, want /opt/lib", name, dirs)
		}
	}
}
