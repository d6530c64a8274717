package hostcall

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/tensor"
)

// moved is an argument, or the slice of it that a piece has, on the host and on the device.
type moved struct {
	slot   *slot
	layout layout
	host   *tensor.Tensor
	device *tensor.Tensor
}

// onDevice makes the tensor of the device for host, at the argument's offset in the device's memory.
func (s *slot) onDevice(host *tensor.Tensor, memory *tensor.Storage) (*moved, error) {
	m := &moved{slot: s, layout: layoutOf(host), host: host}
	dt := host.DType()
	var err error
	m.device, err = tensor.View(memory, dt, host.Shape(), m.layout.strides, s.at/dt.Size())
	return m, err
}

// packing adds to a list the copy between the host's memory and the bytes at offset at of pinned memory. A direct argument needs none.
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

// joinedGap is the largest number of bytes between two staged arguments that one copy moves together. A separate copy takes about as
// long as copying this many bytes.
const joinedGap = 64 << 10

// direction is the direction of copies, with their stream and the pinned memory of staged arguments.
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

// copies queues the copies of arguments. Staged arguments that are close together are copied together, direct ones one by one from or
// to the host's memory.
func (r *execution) copies(d direction, list []*moved) error {
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

// neighbours returns the number of staged arguments, from the first on, that one copy moves because the gaps between them are short.
// The gaps are the same in the device's memory and in pinned memory; see assignOffsets.
func neighbours(staged []*moved) int {
	for n := 1; n < len(staged); n++ {
		last := staged[n-1]
		if staged[n].slot.at-(last.slot.at+last.layout.bytes) > joinedGap {
			return n
		}
	}
	return len(staged)
}

// copyStaged queues one copy of the bytes from the beginning of the argument first to the end of last.
func (r *execution) copyStaged(d direction, first, last *moved) error {
	n := last.slot.at + last.layout.bytes - first.slot.at
	onDevice := device.Region{Storage: first.device.Storage(), Offset: first.slot.at, Size: n}
	staged := device.Region{Storage: d.pinned, Offset: d.at(first.slot), Size: n}
	if d.up {
		return r.engine.drv.CopyAsync(d.stream, onDevice, staged)
	}
	return r.engine.drv.CopyAsync(d.stream, staged, onDevice)
}

// copyRows queues the copies between the host's memory of a direct argument and the device.
func (r *execution) copyRows(d direction, m *moved) error {
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

// uploadResidents queues the uploads of the resident arguments, which all pieces read.
func (r *execution) uploadResidents() error {
	var list []*moved
	for i := range r.slots {
		s := &r.slots[i]
		if s.Tensor == nil || !s.resident || s.same >= 0 {
			continue
		}
		m, err := s.onDevice(s.Tensor, r.resident)
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

// packs lists the copies to pinned memory of the staged arguments that are read.
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

// piece is one piece of the call, in a buffer.
type piece struct {
	buffer      *buffer
	tensors     []*tensor.Tensor // on the device, by argument
	list        []*moved         // the arguments that are copied for this piece
	packs, back []transfer       // to pinned memory and from it
}

// piece returns the piece with the units p in the buffer b.
func (r *execution) piece(p unitRange, b *buffer) (c *piece, err error) {
	c = &piece{buffer: b}
	if c.tensors, c.list, err = r.pieceTensors(p, b); err != nil {
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

// enqueue queues the uploads of a piece, the operator and the downloads, each on its stream.
func (r *execution) enqueue(ctx context.Context, c *piece) error {
	drv, st, b := r.engine.drv, r.streams, c.buffer
	if err := r.copies(direction{st.up, b.in, true}, c.list); err != nil {
		return err
	}
	if err := errors.Join(drv.Record(b.uploaded, st.up), drv.Wait(st.compute, b.uploaded)); err != nil {
		return err
	}
	if err := r.call.Launch(device.WithStream(ctx, st.compute), c.tensors); err != nil {
		return err
	}
	if err := errors.Join(drv.Record(b.computed, st.compute), drv.Wait(st.down, b.computed)); err != nil {
		return err
	}
	if err := r.copies(direction{st.down, b.out, false}, c.list); err != nil {
		return err
	}
	return drv.Record(b.downloaded, st.down)
}

// pieceTensors makes the tensors of a piece on the device. list has those that are copied for this piece.
func (r *execution) pieceTensors(p unitRange, b *buffer) (tensors []*tensor.Tensor, list []*moved, err error) {
	tensors = make([]*tensor.Tensor, len(r.slots))
	for i := range r.slots {
		s := &r.slots[i]
		switch {
		case s.Tensor == nil:
		case s.same >= 0:
			tensors[i] = tensors[s.same]
		case s.resident:
			tensors[i], err = p.slice(r.residents[i], s.Along, r.call.Units)
		default:
			var m *moved
			host, failed := p.slice(s.Tensor, s.Along, r.call.Units)
			if failed != nil {
				return nil, nil, failed
			}
			if m, err = s.onDevice(host, b.memory); err == nil {
				tensors[i], list = m.device, append(list, m)
			}
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return tensors, list, nil
}
