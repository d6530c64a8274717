//go:build linux

package aitercmd

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const (
	hostile   = "a\x1b[7m\x1b]0;t\a\r\b\x7f\u009b7m\u202e\u2066\u2028\xff" // characters that must not reach a terminal
	clearLine = "\r\x1b[K"
)

// TestTerminal runs commands on a terminal, where a build shows a status line. The
// output contains no control sequences except those of the status line.
func TestTerminal(t *testing.T) {
	folder := filepath.Join(t.TempDir(), hostile)
	buildable := filepath.Join(t.TempDir(), "a\u202e\u2066\u2028\xff") // a cache folder may have no control characters
	for _, c := range []struct {
		want string
		args []string
	}{
		{`a\u202e`, []string{"build", "module_aiter_ffi", "--arch", "cpu", "--cache-dir", buildable}},
		{`a\x1b[7m`, []string{"build", "module_aiter_ffi", "--arch", "cpu", "--cache-dir", folder}},
		{`a\x1b[7m`, []string{"cache", "path", "--cache-dir", folder}},
		{`a\x1b[7m`, []string{"describe", hostile}},
		{`a\x1b[7m`, []string{"list", "ops", "--root", filepath.Join(folder, "none")}},
	} {
		text := onTerminal(t, c.args)
		builds := slices.Contains(c.args, buildable)
		if strings.Contains(text, clearLine) != builds || !strings.Contains(text, c.want) {
			t.Errorf("%q: the status line or the name is missing, or a status line is not expected: %q", c.args, text)
		}
		plain := strings.NewReplacer(clearLine, "", "\r\n", "\n").Replace(text)
		raw := strings.IndexFunc(plain, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsGraphic(r) })
		if raw >= 0 || !utf8.ValidString(plain) {
			t.Errorf("raw characters at %d of %q", raw, plain)
		}
	}
}

// onTerminal returns what a command prints on a terminal.
func onTerminal(t *testing.T, args []string) string {
	t.Helper()
	main, tty := openTerminal(t)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Args[0] = "aiterctl" // testscript.Main then runs the program
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
