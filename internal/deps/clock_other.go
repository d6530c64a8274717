//go:build !linux

package deps

import "time"

func stamp() time.Time { return time.Now() }

// steady returns 0. No build runs that could need it.
func steady() time.Duration { return 0 }
