package report

import (
	"math"
	"testing"
)

func TestSnap(t *testing.T) {
	for v, want := range map[float64][2]float64{
		1: {1, 1}, 1.5: {1, 2}, 2: {2, 2}, 3: {2, 5}, 7: {5, 10}, 0.03: {0.02, 0.05}, 9.99e6: {5e6, 1e7}, 0.0007: {0.0005, 0.001},
	} {
		if down, up := snapDown(v), snapUp(v); math.Abs(down-want[0]) > 1e-9*v || math.Abs(up-want[1]) > 1e-9*v {
			t.Errorf("around %g: %g and %g, want %v", v, down, up, want)
		}
	}
}

func TestScales(t *testing.T) {
	l := logScale(1.2e3, 8e6, 0, 100)
	if l.min != 1e3 || l.max != 1e7 || l.at(1e3) != 0 || l.at(1e5) != 50 || l.at(1e9) != 100 {
		t.Errorf("%+v", l)
	}
	for _, s := range []scale{l, logScale(5, 5, 0, 100), logScale(3, 700, 0, 1), linearScale(4265, 300, 0), linearScale(0.7, 300, 0)} {
		ticks := s.ticks()
		if len(ticks) < 3 || len(ticks) > 10 {
			t.Errorf("%+v has the ticks %v", s, ticks)
		}
		for i, v := range ticks {
			if v < s.min-1e-12 || v > s.max*(1+1e-9) || i > 0 && v <= ticks[i-1] {
				t.Errorf("%+v has the ticks %v", s, ticks)
			}
		}
	}
}

func TestFormats(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{formatBytes(1), "1 B"}, {formatBytes(20e3), "20 kB"}, {formatBytes(1.048576e6), "1.05 MB"}, {formatBytes(999.6e6), "1 GB"},
		{formatTime(0.5), "500 ns"}, {formatTime(2.5), "2.5 µs"}, {formatTime(37700), "37.7 ms"}, {formatTime(2e6), "2 s"},
		{digits(4265.8), "4,266"}, {digits(99.96), "100"}, {digits(12.34), "12.3"}, {digits(0), "0"}, {digits(0.126), "0.13"},
		{grouped(-1234567), "-1,234,567"}, {grouped(999), "999"}, {grouped(-100), "-100"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
