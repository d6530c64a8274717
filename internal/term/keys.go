package term

import (
	"bufio"
	"context"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// EnterKey returns a channel that receives one value for each line of the standard
// input. It returns nil if the program is a background job of the terminal, because a
// read would stop the program.
func EnterKey(ctx context.Context) <-chan struct{} {
	fd := int(os.Stdin.Fd())
	if term.IsTerminal(fd) {
		if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
			return nil
		}
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
