package depfile

import (
	"slices"
	"strings"
	"testing"
)

func TestParseTries(t *testing.T) {
	gnu := "GNU ld (GNU Binutils for Debian) 2.40\nopened script file /x/a map\nusing internal linker script:\n" +
		"attempt to open /early/libv.so failed\nattempt to open /late/./libv.a succeeded\n/late/./libv.a\n" +
		"attempt to open /early/libv.so failed\ncannot find script file /x/none.map\n/usr/bin/ld: cannot find -lv: No such file or directory\n"
	lld := "ld.lld: /late/libv.a\nld.lld: error: unable to find library -lx\nld.lld: warning: old\nld.lld: unit0.o\n"
	for _, tt := range []struct {
		text          string
		found, absent []string
		vain          bool
	}{
		{gnu, []string{"/x/a map", "/late/libv.a"}, []string{"/early/libv.so", "/x/none.map"}, true},
		{"cannot find script file /x/none.map\n", nil, []string{"/x/none.map"}, true},
		{lld, []string{"/late/libv.a", "unit0.o"}, nil, false},
		{"mold: error: library not found: x\n", nil, nil, false},
	} {
		got := ParseTries([]byte(tt.text))
		if !slices.Equal(got.Found, tt.found) || !slices.Equal(got.Absent, tt.absent) || got.Vain != tt.vain {
			t.Errorf("%q: got %+v", tt.text, got)
		}
	}
}

func FuzzParseTries(f *testing.F) {
	for _, seed := range []string{"attempt to open /a succeeded\nattempt to open b failed", "ld.lld: \x00", "opened script file \r\n", "attempt to open  failed"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := ParseTries(text)
		for _, p := range slices.Concat(got.Found, got.Absent) {
			if p == "" || strings.Contains(p, "\n") {
				t.Errorf("%q cannot be a file", p)
			}
		}
	})
}
