// Package term writes to terminals and reads from them: it escapes control
// characters, redraws a status line, formats log lines, and reads the Enter key.
package term

import (
	"cmp"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// Terminal writes to a file that may be a terminal. On a terminal it can show a status
// line below the text. Like [Escaper] it escapes control characters. It is safe for
// concurrent use.
type Terminal struct {
	interactive bool

	mu     sync.Mutex
	file   *os.File
	out    io.Writer // writes to file
	status string
}

// New returns a terminal for f. It writes to out, which must write to f. A nil f counts as a file that is not a terminal.
func New(f *os.File, out io.Writer) *Terminal {
	return &Terminal{file: f, out: out, interactive: term.IsTerminal(int(f.Fd()))}
}

// Interactive reports whether the file is a terminal.
func (t *Terminal) Interactive() bool { return t.interactive }

const clearLine = "\r\x1b[K"

// Write implements io.Writer. Text must end with a newline, else the status line would
// follow on the same line.
func (t *Terminal) Write(p []byte) (int, error) {
	if err := t.writeRaw(appendEscaped(nil, p, false)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// writeRaw writes text without escaping it, above the status line.
func (t *Terminal) writeRaw(text []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.status != "" {
		text = []byte(clearLine + string(text) + t.status)
	}
	_, err := t.out.Write(text)
	return err
}

// SetStatus replaces the status line; "" removes it. It has no effect if the file is not
// a terminal.
func (t *Terminal) SetStatus(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.interactive || text == t.status {
		return
	}
	t.status = Truncate(EscapeLine(text), t.width())
	_, _ = io.WriteString(t.out, clearLine+t.status) // a status line may be lost
}

// width returns the number of characters in a line, 80 if the terminal does not report it.
func (t *Terminal) width() int {
	return cmp.Or(Width(t.file), 80)
}

// Width returns the number of characters in a line of the terminal f, 0 if f is nil or not a terminal.
func Width(f *os.File) int {
	w, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return max(w, 0)
}

// redrawInterval is the time between two drawings of the status line.
const redrawInterval = 100 * time.Millisecond

// KeepStatus redraws the status line with the text of line, ten times a second, until
// stop is called. stop removes the line. It may be called more than once.
func (t *Terminal) KeepStatus(line func() string) (stop func()) {
	end := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(redrawInterval)
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

// Truncate shortens text to fewer characters than width.
func Truncate(text string, width int) string {
	r := []rune(text)
	if len(r) < width {
		return text
	}
	return string(r[:max(width-2, 0)]) + "…"
}
