package term

import (
	"bufio"
	"context"
	"os"

	"golang.org/x/term"
)

// EnterKey returns a channel that receives one value for each line of the standard
// input. It returns nil if the program is a background job of the terminal, because a
// read would stop the program.
func EnterKey(ctx context.Context) <-chan struct{} {
	if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) && !foreground(fd) {
		return nil
	}
	in := bufio.NewReader(os.Stdin)
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
