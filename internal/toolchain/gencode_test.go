package toolchain

import (
	"testing"

	"github.com/aiter-go/aiter/jit/target"
)

func TestGencode(t *testing.T) {
	for arch, want := range map[string]string{
		"sm_80":  "-gencode=arch=compute_80,code=sm_80",
		"sm_90":  "-gencode=arch=compute_90a,code=sm_90a",
		"sm_90a": "-gencode=arch=compute_90a,code=sm_90a",
		"sm_100": "-gencode=arch=compute_100,code=sm_100",
	} {
		v, err := target.Parse(arch)
		if err != nil {
			t.Fatal(err)
		}
		if got := gencode(v); got != want {
			t.Errorf("%s: %s, want %s", arch, got, want)
		}
	}
}
