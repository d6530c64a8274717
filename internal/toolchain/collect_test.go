package toolchain

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/aiter-go/aiter/internal/filehash"
)

// TestFailedDigestEndsReading checks that no file is read after one that cannot be read, and after a cancelled search.
func TestFailedDigestEndsReading(t *testing.T) {
	const unreadable = "/proc/self/mem"
	next := filepath.Join(t.TempDir(), "next")
	write(t, next, "text", 0o644)
	for _, test := range []struct {
		name string
		want error
		end  func(c *collector, giveUp context.CancelFunc)
	}{
		{"unreadable", syscall.EIO, func(c *collector, _ context.CancelFunc) { _ = c.file(unreadable) }}, // its references cannot be read either
		{"cancelled", context.Canceled, func(_ *collector, cancel context.CancelFunc) { cancel() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			c := (&search{ctx: ctx, session: (&Finder{}).Session(), memo: filehash.Open(""), tc: &Toolchain{}}).collector()
			test.end(c, giveUp)
			<-c.reading.Done()
			if err := c.file(next); err != nil {
				t.Fatal(err)
			}
			if err := c.digests.Wait(); !errors.Is(err, test.want) {
				t.Errorf("error is %v, want %v", err, test.want)
			}
			if last := c.files[len(c.files)-1]; last.Path != next || last.Digest != "" {
				t.Errorf("the last file is %+v, want %s without a digest", last, next)
			}
		})
	}
}
