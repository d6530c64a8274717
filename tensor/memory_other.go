//go:build !linux

package tensor

import "math"

// physicalMemory returns math.MaxInt64: the memory is not known.
func physicalMemory() int64 { return math.MaxInt64 }
