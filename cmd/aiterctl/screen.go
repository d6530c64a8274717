package main

import (
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// screen is stderr. On a terminal it can keep a status line below what is
// written to it. Like [visible] it escapes control characters; it writes only those of
// the status line as they are.
type screen struct {
	terminal bool

	mu     sync.Mutex
	file   *os.File
	out    io.Writer // writes to file
	status string
}

func newScreen(f *os.File) *screen {
	return &screen{file: f, out: f, terminal: term.IsTerminal(int(f.Fd()))}
}

const clearLine = "\r\x1b[K"

// Write implements io.Writer. What it writes ends lines, or the status line
// would follow in the middle of one.
func (s *screen) Write(p []byte) (int, error) {
	if err := s.writeRaw(appendVisible(nil, p, false)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *screen) writeRaw(text []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status != "" {
		text = []byte(clearLine + string(text) + s.status)
	}
	_, err := s.out.Write(text)
	return err
}

// setStatus shows a status line in place of the one before; "" shows none.
func (s *screen) setStatus(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal || text == s.status {
		return
	}
	s.status = fit(oneLine(text), s.width())
	// A status line that cannot be shown is not missed.
	_, _ = io.WriteString(s.out, clearLine+s.status)
}

func (s *screen) width() int {
	w, _, err := term.GetSize(int(s.file.Fd()))
	if err != nil || w <= 0 {
		return 80
	}
	return w
}

// fit cuts text so that it stays on one line of a terminal.
func fit(text string, width int) string {
	r := []rune(text)
	if len(r) < width {
		return text
	}
	return string(r[:max(width-2, 0)]) + "…"
}
