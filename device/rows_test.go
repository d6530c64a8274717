package device_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/tensor"
)

// testRows copies rows to the device and back. The gaps differ on the two sides, and bytes in gaps do not change.
func testRows(t *testing.T, drv device.Driver) {
	checkRowCopies(t, drv)
	pinned, err := drv.AllocHost(64)
	must(t, err)
	defer func() { must(t, drv.Free(pinned)) }()
	far := alloc(t, drv, 0, 64)
	q := device.Stream{Device: far.Device()}
	rows := func(s *tensor.Storage, offset, size, pitch, count int64) device.Rows {
		return device.Rows{Storage: s, Offset: offset, Size: size, Pitch: pitch, Count: count}
	}
	for name, r := range map[string][2]device.Rows{
		"unequal sizes":     {rows(far, 0, 4, 8, 2), rows(pinned, 0, 5, 8, 2)},
		"unequal counts":    {rows(far, 0, 4, 8, 2), rows(pinned, 0, 4, 8, 3)},
		"rows that overlap": {rows(far, 0, 4, 3, 2), rows(pinned, 0, 4, 4, 2)},
		"a negative count":  {rows(far, 0, 4, 4, -1), rows(pinned, 0, 4, 4, -1)},
		"a large pitch":     {rows(far, 0, 4, device.MaxPitch+1, 2), rows(pinned, 0, 4, 4, 2)},
		"beyond the end":    {rows(far, 1, 4, 20, 4), rows(pinned, 0, 4, 4, 4)},
		"far beyond":        {rows(far, 0, 4, 8, math.MaxInt64), rows(pinned, 0, 4, 8, math.MaxInt64)},
		"a negative offset": {rows(far, 0, 4, 4, 2), rows(pinned, -1, 4, 4, 2)},
	} {
		var re *device.RegionError
		if err := drv.CopyRowsAsync(q, r[0], r[1]); !errors.As(err, &re) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, drv.CopyRowsAsync(q, rows(far, 64, 4, 4, 0), rows(pinned, 64, 4, 4, 0)))
}

func checkRowCopies(t *testing.T, drv device.Driver) {
	t.Helper()
	q, err := drv.NewStream(0)
	must(t, err)
	defer func() { must(t, q.Close()) }()
	for _, c := range []struct{ size, near, far, count int64 }{{5, 9, 7, 6}, {8, 8, 8, 4}, {4, 12, 4, 5}, {3, 40, 20, 1}, {0, 4, 4, 3}} {
		n := max(c.near, c.far)*c.count + 11
		near, err := drv.AllocHost(n)
		must(t, err)
		mem, err := near.Bytes()
		must(t, err)
		copy(mem, pattern(int(n), 9))
		far := alloc(t, drv, 0, n)
		must(t, drv.Memset(far, 0xee))
		host := device.Rows{Storage: near, Offset: 3, Size: c.size, Pitch: c.near, Count: c.count}
		gpu := device.Rows{Storage: far, Offset: 6, Size: c.size, Pitch: c.far, Count: c.count}
		must(t, drv.CopyRowsAsync(q, gpu, host))
		must(t, drv.Synchronize(q))
		got, want := make([]byte, n), bytes.Repeat([]byte{0xee}, int(n))
		for i := range c.count {
			copy(want[6+i*c.far:6+i*c.far+c.size], pattern(int(n), 9)[3+i*c.near:])
		}
		must(t, drv.CopyToHost(got, far))
		if !bytes.Equal(got, want) {
			t.Errorf("%+v: the device has %v, want %v", c, got, want)
		}
		want = bytes.Repeat([]byte{0x11}, int(n))
		copy(mem, want)
		must(t, drv.CopyRowsAsync(q, host, gpu))
		must(t, drv.Synchronize(q))
		for i := range c.count {
			copy(want[3+i*c.near:3+i*c.near+c.size], pattern(int(n), 9)[3+i*c.near:])
		}
		if !bytes.Equal(mem[:n], want) {
			t.Errorf("%+v: the host has %v, want %v", c, mem[:n], want)
		}
		must(t, drv.Free(near))
	}
}

// A library without copies of rows copies them one by one; others get one call.
func TestRowsOneByOne(t *testing.T) {
	for _, c := range []struct {
		flags []string
		calls int
	}{{[]string{"-DNO_ROWS"}, 0}, {nil, 4}} {
		lib := fake(t, "fakehip", c.flags...)
		checkRowCopies(t, openFake(t, device.OpenHIP, lib))
		if n := callFake(t, lib, "fake_copies_of_rows"); n != c.calls {
			t.Errorf("flags %v: %d calls for rows, want %d", c.flags, n, c.calls)
		}
	}
}

// An event without a time orders streams, and Elapsed refuses it.
func TestUntimedEvent(t *testing.T) {
	for _, drv := range []device.Driver{
		device.OpenHost(), openFake(t, device.OpenHIP, fake(t, "fakehip")), openFake(t, device.OpenCUDA, fake(t, "fakecuda")),
	} {
		q, err := drv.NewStream(0)
		must(t, err)
		timed, err := drv.NewEvent(0)
		must(t, err)
		untimed, err := drv.NewUntimedEvent(0)
		must(t, err)
		must(t, errors.Join(drv.Record(timed, q), drv.Record(untimed, q), drv.Wait(q, untimed), drv.SynchronizeEvent(untimed)))
		var refused *device.EventError
		if _, err := drv.Elapsed(timed, untimed); !errors.As(err, &refused) {
			t.Errorf("%s: Elapsed: %v", drv.Type(), err)
		}
		must(t, errors.Join(timed.Close(), untimed.Close(), q.Close()))
	}
}
