// Package term writes text for people: it escapes control characters, keeps a
// status line at the bottom of a terminal, formats log lines, and reads the Enter
// key.
package term

import (
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// Terminal writes to a file that may be a terminal. On a terminal it can keep a
// status line below what is written. Like [Escaper] it escapes control characters.
type Terminal struct {
	interactive bool

	mu     sync.Mutex
	file   *os.File
	out    io.Writer // writes to file
	status string
}

// New returns a terminal that writes to out, which writes to f.
func New(f *os.File, out io.Writer) *Terminal {
	return &Terminal{file: f, out: out, interactive: term.IsTerminal(int(f.Fd()))}
}

// Interactive reports whether the file is a terminal.
func (t *Terminal) Interactive() bool { return t.interactive }

const clearLine = "\r\x1b[K"

// Write implements io.Writer. Text must end with a newline; the status line would
// follow an unfinished line.
func (t *Terminal) Write(p []byte) (int, error) {
	if err := t.writeRaw(appendEscaped(nil, p, false)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (t *Terminal) writeRaw(text []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.status != "" {
		text = []byte(clearLine + string(text) + t.status)
	}
	_, err := t.out.Write(text)
	return err
}

// SetStatus replaces the status line; "" removes it. It has no effect if the file is
// no terminal.
func (t *Terminal) SetStatus(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.interactive || text == t.status {
		return
	}
	t.status = Truncate(EscapeLine(text), t.width())
	_, _ = io.WriteString(t.out, clearLine+t.status) // a status line may be lost
}

func (t *Terminal) width() int {
	w, _, err := term.GetSize(int(t.file.Fd()))
	if err != nil || w <= 0 {
		return 80
	}
	return w
}

const redrawEvery = 100 * time.Millisecond

// KeepStatus redraws the status line from line until stop is called. stop removes
// the line; it may be called more than once.
func (t *Terminal) KeepStatus(line func() string) (stop func()) {
	end := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(redrawEvery)
		defer tick.Stop()
		defer t.SetStatus("")
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				t.SetStatus(line())
			}
		}
	})
	var once sync.Once
	return func() {
		once.Do(func() { close(end) })
		done.Wait()
	}
}

// Truncate shortens text so that it fits on one line of a terminal.
func Truncate(text string, width int) string {
	r := []rune(text)
	if len(r) < width {
		return text
	}
	return string(r[:max(width-2, 0)]) + "…"
}
