package term

import (
	"bufio"
	"context"
	"io"
	"os"

	"golang.org/x/term"
)

// EnterKey returns a channel that receives one value for each line of input. It returns
// nil if from is nil, or a terminal of which the program is a background job, because a
// read would stop the program.
func EnterKey(ctx context.Context, from io.Reader) <-chan struct{} {
	if from == nil {
		return nil
	}
	if f, ok := from.(*os.File); ok && term.IsTerminal(int(f.Fd())) && !foreground(int(f.Fd())) {
		return nil
	}
	in := bufio.NewReader(from)
	keys := make(chan struct{})
	go func() {
		for {
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
			select {
			case keys <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return keys
}
