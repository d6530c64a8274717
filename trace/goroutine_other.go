//go:build !gc || (!amd64 && !arm64)

package trace

import "runtime"

// goroutine returns the number of this goroutine, from the beginning of its stack trace: "goroutine 12 [running]". It returns 0 if
// the trace begins with another text.
func goroutine() uint64 {
	var buf [40]byte
	const prefix = "goroutine "
	text := buf[:runtime.Stack(buf[:], false)]
	if len(text) < len(prefix) || string(text[:len(prefix)]) != prefix {
		return 0
	}
	var n uint64
	for _, c := range text[len(prefix):] {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}
