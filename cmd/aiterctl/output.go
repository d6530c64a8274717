package main

import (
	"fmt"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
)

// parseAge is [cache.ParseAge]; "" is 0, which is no condition.
func parseAge(s string) (time.Duration, error) { return parsed(s, cache.ParseAge) }

// parseSize is [cache.ParseSize]; "" is 0, which is no limit.
func parseSize(s string) (int64, error) { return parsed(s, cache.ParseSize) }

func parsed[N any](s string, parse func(string) (N, error)) (n N, err error) {
	if s == "" {
		return n, nil
	}
	if n, err = parse(s); err != nil {
		err = &usageError{err}
	}
	return n, err
}

// formatSize is a number of bytes for people.
func formatSize(n int64) string {
	f, unit := float64(n), "B"
	for _, next := range []string{"kB", "MB", "GB", "TB"} {
		if f < 1000 {
			break
		}
		f, unit = f/1000, next
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}
