package term

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// hostile has one character of each kind that must not reach a terminal.
const hostile = "a\x1b[7m\x1b]0;t\a\r\b\x00\x7f\u0085\u009b7m\u202e\u2066\u2028\U000e0001\xff\xc2"

func TestEscape(t *testing.T) {
	want := `a\x1b[7m\x1b]0;t\a\r\b\x00\u007f\u0085\u009b7m\u202e\u2066\u2028\udb40\udc01\xff\xc2`
	if got := EscapeLine(hostile); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, s := range []string{"plain\n\ttext", "für 4×4 … 日本", "\ufffd", ""} {
		if got := string(appendEscaped(nil, []byte(s), false)); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
	if got := EscapeLine("a\n\tb"); got != `a\n\tb` {
		t.Errorf("one line: %q", got)
	}
}

// FuzzEscape checks that the output has only lines, tabs and graphic characters, wherever
// writes divide the text, and that JSON keeps its meaning.
func FuzzEscape(f *testing.F) {
	f.Add(hostile, 3)
	f.Add("日本\n", 1)
	f.Fuzz(func(t *testing.T, s string, size int) {
		var out bytes.Buffer
		v := NewEscaper(&out)
		for rest := s; rest != ""; {
			n := min(max(size, 1), len(rest))
			if _, err := io.WriteString(v, rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		v.Flush()
		if whole := string(appendEscaped(nil, []byte(s), false)); out.String() != whole {
			t.Fatalf("in pieces of %d: %q, whole: %q", size, out.String(), whole)
		}
		checkGraphic(t, out.String())
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var want, got string
		if err := errors.Join(json.Unmarshal(text, &want), json.Unmarshal(appendEscaped(nil, text, false), &got)); err != nil || got != want {
			t.Fatalf("JSON of %q became %q, %v", want, got, err)
		}
	})
}

func checkGraphic(t *testing.T, text string) {
	t.Helper()
	raw := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsGraphic(r) })
	if raw >= 0 || !utf8.ValidString(text) {
		t.Errorf("raw characters at %d of %q", raw, text)
	}
}

// TestLogIsEscaped checks that a colored log line has the logger's colors and no other
// control character.
func TestLogIsEscaped(t *testing.T) {
	for _, colored := range []bool{true, false} {
		file, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		terminal := New(file, file)
		bad := hostile + "\nhint: x"
		log := terminal.Logger(colored, slog.LevelWarn)
		log.Info(bad)
		log.Warn(bad, "s", bad, "list", []string{bad}, "error", errors.New(bad), "map", map[string]any{bad: []string{bad}}, bad, "x",
			slog.Group(bad, bad, bad))
		text, err := os.ReadFile(file.Name())
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		colors := regexp.MustCompile(`\x1b\[(0|1|2|3[1-6]|9[0-7])m`)
		if n := len(colors.FindAll(text, -1)); (n > 0) != colored {
			t.Errorf("%d colors", n)
		}
		plain := colors.ReplaceAllString(string(text), "")
		checkGraphic(t, plain)
		if strings.Count(plain, "\n") != 1 {
			t.Errorf("not one line: %q", plain)
		}
	}
}

func TestTruncate(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"short", 80, "short"}, {"12345", 5, "123…"}, {"äöüß", 4, "äö…"}, {"any", 0, "…"}, {"", 80, ""},
	} {
		if got := Truncate(c.text, c.width); got != c.want {
			t.Errorf("Truncate(%q, %d) = %q, want %q", c.text, c.width, got, c.want)
		}
	}
}
