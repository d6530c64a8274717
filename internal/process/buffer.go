package process

import (
	"bytes"
	"fmt"
	"sync"
)

// Buffer keeps the first Limit bytes that are written to it. It is safe for concurrent use.
type Buffer struct {
	Limit  int  // bytes
	Strict bool // more output kills the command; without Strict the rest is dropped

	full func() // called at each write beyond the limit

	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer. It never fails, because an error would close the pipe and kill the program.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	left := max(b.Limit-b.buf.Len(), 0)
	b.buf.Write(p[:min(len(p), left)])
	b.mu.Unlock()
	if len(p) > left && b.full != nil {
		b.full()
	}
	return len(p), nil
}

// Bytes returns the bytes that were kept. The caller must not use them while the command runs.
func (b *Buffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Bytes()
}

// OverflowError reports a program that was killed because it printed more than allowed.
type OverflowError struct {
	Limit int // bytes
}

func (e *OverflowError) Error() string {
	return fmt.Sprintf("it printed more than %d bytes and was killed", e.Limit)
}
