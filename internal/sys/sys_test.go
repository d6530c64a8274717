package sys

import (
	"errors"
	"strings"
	"testing"
)

func TestUnsupported(t *testing.T) {
	if err := unsupported("building kernels", "linux"); err != nil {
		t.Errorf("linux: %v", err)
	}
	for _, goos := range []string{"darwin", "windows"} {
		err := unsupported("building kernels", goos)
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "building kernels is not supported on "+goos) {
			t.Errorf("%s: %v", goos, err)
		}
	}
}
