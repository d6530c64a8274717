package depfile

import (
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string
	}{
		{"one line", "a.o: a.c b.h\n", []string{"a.c", "b.h"}},
		{"continued", "a.o: a.c \\\n  b.h \\\r\n c.h\n", []string{"a.c", "b.h", "c.h"}},
		{"escapes", `a.o: a\ b.c c\#d.h e$$f.h` + "\n", []string{"a b.c", "c#d.h", "e$f.h"}},
		{"phony rules", "a.o: a.c b.h\nb.h:\n", []string{"a.c", "b.h"}},
		{"twice", "a.o: a.c ./b.h b.h\n", []string{"a.c", "b.h"}},
		{"dots stay", "a.o: x/../b.h\n", []string{"x/../b.h"}},
		{"two targets", "a.o a.d: a.c\n", []string{"a.c"}},
		{"blank before the colon, as nvcc writes it", "a.o : a.c \\\n    b.h \\\n\n", []string{"a.c", "b.h"}},
		{"colon inside", "a.o: C:/x.h\n", []string{"C:/x.h"}},
		{"no final line end", "a.o: a.c", []string{"a.c"}},
		{"nothing read", "a.o:\n", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse([]byte(tt.in))
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
	for _, bad := range []string{"", "a.c b.h", "garbage \x00", "a.o: b.c\nstray\n"} {
		if got, err := Parse([]byte(bad)); err == nil {
			t.Errorf("Parse(%q) = %q, want an error", bad, got)
		}
	}
}

func TestParseHeaders(t *testing.T) {
	got := ParseHeaders([]byte("./inc/a.h\n.. /usr/x.h\n. inc/a.h\n../b.h\n\n"))
	if want := []string{"inc/a.h", "/usr/x.h", "../b.h"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("a.o: a.c \\\n b\\ c.h $$\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		names, err := Parse(data)
		if err == nil && slices.Contains(names, "") {
			t.Error("an empty name")
		}
		ParseHeaders(data)
	})
}

func TestParseTrace(t *testing.T) {
	text := "a.cpp:1:1: error: x\n. inc/a.h\n.. /usr/include/b c.h\n...\n.hidden: no\n. inc/a.h\nMultiple include guards may be useful " +
		"for:\n/usr/include/d.h\n"
	if got, want := ParseTrace([]byte(text)), []string{"inc/a.h", "/usr/include/b c.h"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
