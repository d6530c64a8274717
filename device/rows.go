package device

import (
	"fmt"

	"github.com/aiter-go/aiter/tensor"
)

// MaxPitch is the largest pitch of [Rows] that devices accept.
const MaxPitch = 1<<31 - 1

// Rows are ranges of a storage at equal distances: Count rows of Size bytes. The first begins at byte Offset, each other one Pitch
// bytes after the one before it. A single row needs no pitch.
type Rows struct {
	Storage             *tensor.Storage
	Offset, Size, Pitch int64
	Count               int64
}

func (r Rows) address() uintptr { return r.Storage.Ptr() + uintptr(r.Offset) }

// row returns row i.
func (r Rows) row(i int64) Region {
	return Region{Storage: r.Storage, Offset: r.Offset + i*r.Pitch, Size: r.Size}
}

// joined returns rows without gaps as one row.
func (r Rows) joined() Rows {
	if r.Count > 1 && r.Pitch == r.Size {
		r.Size, r.Count = r.Size*r.Count, 1
	}
	return r
}

// checkRows verifies that both sides have equal rows, inside their storages, on the stream's device or the host.
func checkRows(s Stream, dst, src Rows) error {
	if dst.Size != src.Size || dst.Count != src.Count {
		return &RegionError{Call: "CopyRowsAsync", What: "size", Got: fmt.Sprintf("%d rows of %d bytes to %d of %d", src.Count, src.Size,
			dst.Count, dst.Size), Expected: "the same number of rows of the same size"}
	}
	return firstError(src.check(s, "source"), dst.check(s, "destination"))
}

// check verifies one side.
func (r Rows) check(s Stream, what string) error {
	if r.Count < 0 || r.Count > 1 && (r.Pitch < r.Size || r.Pitch > MaxPitch) {
		return &RegionError{Call: "CopyRowsAsync", What: what, Got: fmt.Sprintf("%d rows of %d bytes with a pitch of %d", r.Count, r.Size,
			r.Pitch), Expected: fmt.Sprintf("0 rows or more, and a pitch from the size up to %d", MaxPitch)}
	}
	if r.Count == 0 {
		return nil
	}
	if size := r.Storage.Size(); r.Count > 1 && r.Count-1 > size/r.Pitch {
		return &RegionError{Call: "CopyRowsAsync", What: what, Got: fmt.Sprintf("%d rows with a pitch of %d", r.Count, r.Pitch),
			Expected: fmt.Sprintf("a range within the storage's %d bytes", size)}
	}
	return firstError(checkRegion(s, what, r.row(0)), checkRegion(s, what, r.row(r.Count-1)))
}

func (g *gpu) CopyRowsAsync(s Stream, dst, src Rows) error {
	if err := firstError(g.checkStream("CopyRowsAsync", s), checkRows(s, dst, src)); err != nil {
		return err
	}
	if src.joined().Count == 1 && dst.joined().Count == 1 {
		return g.CopyAsync(s, dst.joined().row(0), src.joined().row(0))
	}
	work := copySpan(dst.row(0), src.row(0))
	work.Bytes = dst.Size * dst.Count
	return g.queued(s, work, func() error { return g.queueRows(s, dst, src) })
}

// queueRows queues a copy of checked rows: one by one with a library that lacks copies of rows.
func (g *gpu) queueRows(s Stream, dst, src Rows) error {
	if !g.api.copiesRows() {
		for i := range dst.Count {
			if err := g.queueCopy(s, dst.row(i), src.row(i)); err != nil {
				return err
			}
		}
		return nil
	}
	return g.onDevice(int(s.Device.ID), func() error {
		g.copying.RLock()
		defer g.copying.RUnlock()
		if err := firstError(dst.Storage.Check(), src.Storage.Check()); err != nil || dst.Count == 0 || dst.Size == 0 {
			return err
		}
		return g.api.copyRows(dst, src, s.Handle)
	})
}

func (h *host) CopyRowsAsync(s Stream, dst, src Rows) error {
	if err := firstError(checkHostStream("CopyRowsAsync", s), checkRows(s, dst, src)); err != nil {
		return err
	}
	for i := range dst.Count {
		if err := h.CopyAsync(s, dst.row(i), src.row(i)); err != nil {
			return err
		}
	}
	return nil
}
