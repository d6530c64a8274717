// Package process runs programs in new process groups, with bounded output, and can trace which files they read.
package process

import (
	"fmt"
	"time"
)

// Command is a program to run.
type Command struct {
	Argv    []string // Argv[0] is the path of the program
	Dir     string
	Env     []string      // complete environment
	Output  *Buffer       // standard output, and standard error unless Errors is set
	Errors  *Buffer       // standard error; nil: it goes to Output
	Grace   time.Duration // for which children may keep the output open after the program ended; see exec.ErrWaitDelay
	Timeout time.Duration // after which Run kills the program; 0: never
}

// TimeoutError reports a program that was killed because it ran longer than allowed.
type TimeoutError struct {
	Limit time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("it ran longer than %s and was killed", e.Limit)
}
