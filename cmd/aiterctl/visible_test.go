package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// hostile has each kind of character that a terminal must not get.
const hostile = "a\x1b[7m\x1b]0;t\a\r\b\x00\x7f\u0085\u009b7m\u202e\u2066\u2028\U000e0001\xff\xc2"

func TestVisible(t *testing.T) {
	want := `a\x1b[7m\x1b]0;t\a\r\b\x00\u007f\u0085\u009b7m\u202e\u2066\u2028\udb40\udc01\xff\xc2`
	if got := oneLine(hostile); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, s := range []string{"plain\n\ttext", "für 4×4 … 日本", "\ufffd", ""} {
		if got := string(appendVisible(nil, []byte(s), false)); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
	if got := oneLine("a\n\tb"); got != `a\n\tb` {
		t.Errorf("one line: %q", got)
	}
}

// FuzzVisible holds that nothing but lines, tabs and graphic characters comes through,
// wherever writes cut the text, and that JSON still says the same.
func FuzzVisible(f *testing.F) {
	f.Add(hostile, 3)
	f.Add("日本\n", 1)
	f.Fuzz(func(t *testing.T, s string, size int) {
		var out bytes.Buffer
		v := &visible{to: &out}
		for rest := s; rest != ""; {
			n := min(max(size, 1), len(rest))
			if _, err := io.WriteString(v, rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		v.flush()
		if whole := string(appendVisible(nil, []byte(s), false)); out.String() != whole {
			t.Fatalf("in pieces of %d: %q, whole: %q", size, out.String(), whole)
		}
		checkGraphic(t, out.String())
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var want, got string
		if err := errors.Join(json.Unmarshal(text, &want), json.Unmarshal(appendVisible(nil, text, false), &got)); err != nil || got != want {
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

// TestLogIsVisible holds that a colored log line has the logger's colors and no other
// control character, whatever is logged.
func TestLogIsVisible(t *testing.T) {
	for _, colored := range []bool{true, false} {
		file, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		a := newApp(os.Stdout, file, os.Getenv)
		bad := hostile + "\nhint: x"
		log := zerolog.New(a.console(colored)).With().Timestamp().Logger()
		log.Warn().Str("s", bad).Strs("list", []string{bad}).Err(errors.New(bad)).Any("map", map[string]any{bad: []string{bad}}).Str(bad, "x").Msg(bad)
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

// TestTerminal runs commands on a terminal, where a build shows a status line. Its own two
// control sequences are the only ones.
func TestTerminal(t *testing.T) {
	bad := strings.ReplaceAll(hostile, "\x00", "")
	folder := filepath.Join(t.TempDir(), bad)
	buildable := filepath.Join(t.TempDir(), "a\u202e\u2066\u2028\xff") // a cache folder may have no control characters
	for _, c := range []struct {
		want string
		args []string
	}{
		{`a\u202e`, []string{"build", "module_aiter_ffi", "--arch", "cpu", "--cache-dir", buildable}},
		{`a\x1b[7m`, []string{"build", "module_aiter_ffi", "--arch", "cpu", "--cache-dir", folder}},
		{`a\x1b[7m`, []string{"cache", "path", "--cache-dir", folder}},
		{`a\x1b[7m`, []string{"describe", bad}},
		{`a\x1b[7m`, []string{"list", "ops", "--root", filepath.Join(folder, "none")}},
	} {
		text := onTerminal(t, c.args)
		builds := slices.Contains(c.args, buildable)
		if strings.Contains(text, clearLine) != builds || !strings.Contains(text, c.want) {
			t.Errorf("%q: a status line is not where it should be, or the name is missing: %q", c.args, text)
		}
		checkGraphic(t, strings.NewReplacer(clearLine, "", "\r\n", "\n").Replace(text))
	}
}

// onTerminal returns what a command prints on a terminal.
func onTerminal(t *testing.T, args []string) string {
	t.Helper()
	main, tty := openTerminal(t)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Args[0] = "aiterctl" // which the test binary is then
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.Env = append(os.Environ(), "AITER_META_DIR=")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close()
	text, err := io.ReadAll(main) // ends with EIO, as terminals do
	if !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	_ = cmd.Wait() // some commands fail
	return string(text)
}

// openTerminal returns both ends of a pseudo-terminal.
func openTerminal(t *testing.T) (main, tty *os.File) {
	t.Helper()
	main, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = main.Close() })
	fd := int(main.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(n)), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return main, tty
}
