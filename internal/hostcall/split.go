package hostcall

// unitRange has the units [from, to) of each axis that one piece consists of.
type unitRange struct{ from, to []int64 }

// split splits the axes into about n pieces. It splits an axis only if all axes before it are split into single units.
func split(units []int64, n int64) []unitRange {
	parts := make([]int64, len(units))
	for i, u := range units {
		parts[i] = min(max(n, 1), max(u, 1))
		n = (n + parts[i] - 1) / parts[i]
		if parts[i] < u {
			n = 1
		}
	}
	pieces := []unitRange{{}}
	for i, u := range units {
		var finer []unitRange
		for _, p := range pieces {
			for k := range parts[i] {
				finer = append(finer, unitRange{
					from: append(p.from[:len(p.from):len(p.from)], k*u/parts[i]),
					to:   append(p.to[:len(p.to):len(p.to)], (k+1)*u/parts[i]),
				})
			}
		}
		pieces = finer
	}
	return pieces
}

// coarsest is the largest factor by which pieces may exceed the wanted size, if larger pieces make the copies cheaper.
const coarsest = 8

// choose splits the call into pieces of about size bytes in one direction, or into larger ones if those cost less.
func (r *execution) choose(size int64) ([]unitRange, error) {
	up, down := r.traffic()
	n := (max(up, down) + size - 1) / size
	var best []unitRange
	least := 0.0
	for larger := int64(1); larger <= coarsest; larger *= 2 {
		ranges := split(r.call.Units, n/larger)
		cost, err := r.cost(ranges)
		if err != nil {
			return nil, err
		}
		if best == nil || cost < least {
			best, least = ranges, cost
		}
		if n/larger <= 2 {
			break
		}
	}
	return best, nil
}

// The costs of copies, measured on an H100 with 16 processors. A device copies a shorter row in the time of a row of cheapRow bytes.
// A processor bypasses its caches when it copies runs of streamedRun bytes or more.
const (
	cheapRow    = 256
	streamedRun = 1 << 20
	cachedRun   = 1.35 // time of a byte in shorter runs, relative to longer ones
	runOverhead = 64   // time of each run, in bytes
	pinnedLag   = 0.8  // time in pieces in which only one direction copies: the first upload and the last download
	stagedLag   = 3    // the same, with the copies to and from pinned memory
)

// cost estimates the time of a call, as a number of bytes that a copy at full speed moves in that time. It adds the copies of the
// slower direction and the lag of downloads behind uploads.
func (r *execution) cost(ranges []unitRange) (float64, error) {
	var up, down, upLag, downLag float64
	lag := pinnedLag
	middle := ranges[len(ranges)/2]
	for i := range r.slots {
		s := &r.slots[i]
		if s.Tensor == nil || s.resident || s.same >= 0 {
			continue
		}
		t, err := middle.slice(s.Tensor, s.Along, r.call.Units)
		if err != nil {
			return 0, err
		}
		l, pinned := layoutOf(t), r.engine.pool.Pinned(s.Tensor.Storage())
		if !pinned {
			lag = stagedLag
		}
		whole := float64(s.Tensor.Numel()*s.Tensor.DType().Size()) * l.slowness(pinned)
		if s.Read {
			up += whole
			upLag += float64(l.bytes)
		}
		if s.Written {
			down += whole
			downLag += float64(l.bytes)
		}
	}
	return max(up, down) + lag*max(upLag, downLag), nil
}

// slowness returns the time of the layout's copies, relative to one copy of as many adjacent bytes.
func (l *layout) slowness(pinned bool) float64 {
	switch run := float64(l.run); {
	case l.runs() <= 1 || !pinned && l.run >= streamedRun:
		return 1
	case pinned && l.direct():
		return max(1, cheapRow/run)
	default:
		return cachedRun + runOverhead/run
	}
}
