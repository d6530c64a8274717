package deps

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/sys"
)

// A tick that comes late sets the clock to the time at which it was due. A file that was written meanwhile may have a later time.
func TestNextTickAfterLateTick(t *testing.T) {
	at := func(tick, exact int64) Instant {
		return Instant{Stamp: time.UnixMicro(tick), steady: time.Duration(tick) * time.Microsecond, exact: time.UnixMicro(exact)}
	}
	list := []Instant{at(4000, 8100), at(8000, 8200), at(12000, 12100)}
	next := NextTick(func() Instant {
		now := list[0]
		list = list[1:]
		return now
	})
	if !next.Stamp.Equal(time.UnixMicro(12000)) {
		t.Errorf("got the tick at %d us, want 12000: a file written at 8050 us is earlier", next.Stamp.UnixMicro())
	}
}

// The kernel stamps a file exactly if a program has read its times since the last write.
func TestNextTickIsAfterFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	for range 20 {
		var changed time.Time
		for range 2 {
			if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			changed = info.ModTime()
			if c, ok := sys.Changed(info); ok && c.After(changed) {
				changed = c
			}
		}
		if next := NextTick(Now); !changed.Before(next.Stamp) {
			t.Errorf("the next tick is at %v, the file was written before it at %v", next.Stamp, changed)
		}
	}
}
