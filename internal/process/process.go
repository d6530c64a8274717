// Package process runs programs in new process groups, with bounded output, and can trace which files they read.
package process

import "time"

// Command is a program to run.
type Command struct {
	Argv   []string // Argv[0] is the path of the program
	Dir    string
	Env    []string      // complete environment
	Output *Buffer       // standard output, and standard error unless Errors is set
	Errors *Buffer       // standard error; nil: it goes to Output
	Grace  time.Duration // for which children may keep the output open after the program ended; see exec.ErrWaitDelay
}
