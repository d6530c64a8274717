package deps

import (
	"fmt"
	"io"
	"os"

	"github.com/aiter-go/aiter/internal/sys"
)

// maxReport bounds the lists of files that compilers write.
const maxReport = 64 << 20 // bytes

const wrapperAdvice = "check whether the compiler is a wrapper that changes its output"

// ReadReport reads a list of files that a compiler wrote. It fails on anything but a regular
// file of limited size, for example on a named pipe that a compiler wrapper made.
func ReadReport(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|sys.NonBlock, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: expected a regular file, got %s; %s", path, info.Mode().Type(), wrapperAdvice)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxReport+1))
	if len(data) > maxReport {
		return nil, fmt.Errorf("%s: expected at most %d bytes; %s", path, maxReport, wrapperAdvice)
	}
	return data, err
}
