package perf

import (
	"testing"
	"testing/fstest"

	"github.com/aiter-go/aiter/device"
)

func TestCacheSize(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	for _, c := range []struct {
		files fstest.MapFS
		want  int64
	}{
		{fstest.MapFS{"index0/size": file("32K\n"), "index3/size": file("1024K\n"), "index3/type": file("9999999K")}, 2 << 20},
		{fstest.MapFS{"index0/size": file("none\n")}, 2 * defaultCache},
		{fstest.MapFS{}, 2 * defaultCache},
		{fstest.MapFS{"index0/size": file("99999999K\n")}, 2 * maxCache},
	} {
		if got := cacheSize(c.files); got != c.want {
			t.Errorf("%v: %d, want %d", c.files, got, c.want)
		}
	}
}

func TestCopyHostCopiesAll(t *testing.T) {
	h := device.OpenHost()
	for _, n := range []int64{0, 1, 5, 4097, copyChunk - 1, copyChunk, 3*copyChunk + 5} {
		src, err := h.Alloc(0, n)
		if err != nil {
			t.Fatal(err)
		}
		dst, err := h.Alloc(0, n)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Memset(src, 7); err != nil {
			t.Fatal(err)
		}
		if err := copyHost(dst, src); err != nil {
			t.Fatal(err)
		}
		got, err := dst.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range got {
			if v != 7 {
				t.Errorf("byte %d of %d was not copied", i, n)
				break
			}
		}
	}
}
