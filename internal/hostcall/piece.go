package hostcall

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/tensor"
)

// moved is an argument, or its part in a piece, on the host and on the device.
type moved struct {
	slot   *slot
	layout layout
	host   *tensor.Tensor
	device *tensor.Tensor
}

// move makes the tensor of the device at the argument's place in a storage.
func (s *slot) move(host *tensor.Tensor, memory *tensor.Storage) (*moved, error) {
	m := &moved{slot: s, layout: layoutOf(host), host: host}
	dt := host.DType()
	var err error
	m.device, err = tensor.View(memory, dt, host.Shape(), m.layout.strides, s.at/dt.Size())
	return m, err
}

// packing adds the copy between the host's memory and pinned memory to a list.
func (m *moved) packing(list []transfer, pinned *tensor.Storage, at int64) ([]transfer, error) {
	if m.slot.direct || m.layout.bytes == 0 {
		return list, nil
	}
	memory, err := m.host.Storage().Bytes()
	if err != nil {
		return list, err
	}
	packed, err := pinned.Bytes()
	if err != nil {
		return list, err
	}
	return append(list, transfer{&m.layout, packed[at : at+m.layout.bytes], memory}), nil
}

// joinedGap is the number of bytes between staged arguments up to which one copy moves them together: a copy of its own takes about
// as long as this many bytes.
const joinedGap = 64 << 10

// direction is that of copies on a stream, with the pinned memory for staged arguments.
type direction struct {
	stream device.Stream
	pinned *tensor.Storage
	up     bool
}

func (d direction) has(s *slot) bool { return d.up && s.Read || !d.up && s.Written }

func (d direction) at(s *slot) int64 {
	if d.up {
		return s.inAt
	}
	return s.outAt
}

// copies queues the copies of arguments: staged neighbours together, others from or to the host's memory itself.
func (r *run) copies(d direction, list []*moved) error {
	var staged []*moved
	for _, m := range list {
		switch {
		case !d.has(m.slot) || m.layout.bytes == 0:
		case m.slot.direct:
			if err := r.copyRows(d, m); err != nil {
				return err
			}
		default:
			staged = append(staged, m)
		}
	}
	slices.SortFunc(staged, func(a, b *moved) int { return cmp.Compare(a.slot.at, b.slot.at) })
	for len(staged) > 0 {
		n := neighbours(staged)
		if err := r.copyStaged(d, staged[0], staged[n-1]); err != nil {
			return err
		}
		staged = staged[n:]
	}
	return nil
}

// neighbours returns how many of the staged arguments one copy moves: those with short gaps. Their distances are the same in both
// memories (run.place).
func neighbours(staged []*moved) int {
	for n := 1; n < len(staged); n++ {
		last := staged[n-1]
		if staged[n].slot.at-(last.slot.at+last.layout.bytes) > joinedGap {
			return n
		}
	}
	return len(staged)
}

// copyStaged queues one copy from the beginning of an argument to the end of another one.
func (r *run) copyStaged(d direction, first, last *moved) error {
	n := last.slot.at + last.layout.bytes - first.slot.at
	onDevice := device.Region{Storage: first.device.Storage(), Offset: first.slot.at, Size: n}
	staged := device.Region{Storage: d.pinned, Offset: d.at(first.slot), Size: n}
	if d.up {
		return r.engine.drv.CopyAsync(d.stream, onDevice, staged)
	}
	return r.engine.drv.CopyAsync(d.stream, staged, onDevice)
}

// copyRows queues the copies between the host's memory of an argument and the device.
func (r *run) copyRows(d direction, m *moved) error {
	l := &m.layout
	rows := device.Rows{Storage: m.host.Storage(), Size: l.run}
	rows.Count, rows.Pitch = l.rows()
	packed := device.Rows{Storage: m.device.Storage(), Offset: m.slot.at, Size: l.run, Count: rows.Count, Pitch: l.run}
	for i := range l.copies() {
		rows.Offset = l.at(i * rows.Count)
		dst, src := packed, rows
		if !d.up {
			dst, src = src, dst
		}
		if err := r.engine.drv.CopyRowsAsync(d.stream, dst, src); err != nil {
			return err
		}
		packed.Offset += rows.Count * l.run
	}
	return nil
}

// uploadResidents queues the copies of the arguments that all pieces read.
func (r *run) uploadResidents() error {
	var list []*moved
	for i := range r.slots {
		s := &r.slots[i]
		if s.Tensor == nil || !s.resident || s.same >= 0 {
			continue
		}
		m, err := s.move(s.Tensor, r.resident)
		if err != nil {
			return err
		}
		r.residents[i] = m.device
		list = append(list, m)
	}
	packs, err := packs(list, r.residentIn)
	if err != nil {
		return err
	}
	r.engine.move(packs, true)
	return r.copies(direction{r.streams.up, r.residentIn, true}, list)
}

// packs lists the copies to pinned memory of the arguments that are read.
func packs(list []*moved, pinned *tensor.Storage) (packs []transfer, err error) {
	for _, m := range list {
		if m.slot.Read {
			if packs, err = m.packing(packs, pinned, m.slot.inAt); err != nil {
				return nil, err
			}
		}
	}
	return packs, nil
}

// piece is a part of the call in a buffer.
type piece struct {
	buffer      *buffer
	tensors     []*tensor.Tensor // on the device, by argument
	list        []*moved         // those that are copied
	packs, back []transfer       // to pinned memory and from it
}

// piece describes a piece.
func (r *run) piece(p unitRange, b *buffer) (c *piece, err error) {
	c = &piece{buffer: b}
	if c.tensors, c.list, err = r.parts(p, b); err != nil {
		return nil, err
	}
	if c.packs, err = packs(c.list, b.in); err != nil {
		return nil, err
	}
	for _, m := range c.list {
		if m.slot.Written {
			if c.back, err = m.packing(c.back, b.out, m.slot.outAt); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// enqueue queues the copies of a piece and the operator.
func (r *run) enqueue(ctx context.Context, c *piece) error {
	drv, st, b := r.engine.drv, r.streams, c.buffer
	if err := r.copies(direction{st.up, b.in, true}, c.list); err != nil {
		return err
	}
	if err := errors.Join(drv.Record(b.uploaded, st.up), drv.Wait(st.run, b.uploaded)); err != nil {
		return err
	}
	if err := r.call.Launch(device.WithStream(ctx, st.run), c.tensors); err != nil {
		return err
	}
	if err := errors.Join(drv.Record(b.computed, st.run), drv.Wait(st.down, b.computed)); err != nil {
		return err
	}
	if err := r.copies(direction{st.down, b.out, false}, c.list); err != nil {
		return err
	}
	return drv.Record(b.downloaded, st.down)
}

// parts makes the tensors of a piece on the device. list has those that are copied.
func (r *run) parts(p unitRange, b *buffer) (tensors []*tensor.Tensor, list []*moved, err error) {
	tensors = make([]*tensor.Tensor, len(r.slots))
	for i := range r.slots {
		s := &r.slots[i]
		switch {
		case s.Tensor == nil:
		case s.same >= 0:
			tensors[i] = tensors[s.same]
		case s.resident:
			tensors[i], err = p.part(r.residents[i], s.Along, r.call.Units)
		default:
			var m *moved
			host, failed := p.part(s.Tensor, s.Along, r.call.Units)
			if failed != nil {
				return nil, nil, failed
			}
			if m, err = s.move(host, b.memory); err == nil {
				tensors[i], list = m.device, append(list, m)
			}
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return tensors, list, nil
}
