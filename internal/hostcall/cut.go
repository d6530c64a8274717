package hostcall

// unitRange is a piece: the units [from, to) of each axis.
type unitRange struct{ from, to []int64 }

// cut cuts the axes into about n pieces. An axis is cut if those before it are cut into single units.
func cut(units []int64, n int64) []unitRange {
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

// coarsest is the number of times that pieces may be larger than wanted, if that makes their copies cheaper.
const coarsest = 8

// choose cuts the call into pieces of about size bytes in one direction, or into larger ones if those cost less.
func (r *run) choose(size int64) ([]unitRange, error) {
	up, down := r.traffic()
	n := (max(up, down) + size - 1) / size
	var best []unitRange
	least := 0.0
	for larger := int64(1); larger <= coarsest; larger *= 2 {
		ranges := cut(r.call.Units, n/larger)
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

// The costs of copies, measured on an H100 with 16 processors: a device copies rows of fewer than 256 bytes as slowly as those, and
// processors copy memory in runs of 1 MiB or more past their caches.
const (
	cheapRow    = 256
	streamedRun = 1 << 20
	cachedRun   = 1.35 // of shorter runs, over longer ones
	runOverhead = 64   // bytes
	pinnedLag   = 0.8  // of a piece: its upload, which no download overlaps, and its download
	stagedLag   = 3    // with the copies to and from pinned memory
)

// cost estimates the time of a call in bytes that are copied at full speed: the copies of the slower direction, and one piece, by
// which downloads are behind uploads.
func (r *run) cost(ranges []unitRange) (float64, error) {
	var up, down, upLag, downLag float64
	lag := pinnedLag
	middle := ranges[len(ranges)/2]
	for i := range r.slots {
		s := &r.slots[i]
		if s.Tensor == nil || s.resident || s.same >= 0 {
			continue
		}
		t, err := middle.part(s.Tensor, s.Along, r.call.Units)
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

// slowness returns the time of the layout's copies over that of a copy of one run.
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
