package term

import (
	"bufio"
	"context"
	"io"
	"os"

	"golang.org/x/term"
)

// EnterKey returns a channel that receives one value for each line of input, until ctx
// ends. It returns nil if from is nil, and for a terminal if the program is a background
// job, because the system stops a background job that reads.
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
