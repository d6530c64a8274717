//go:build !linux

package term

// foreground returns true: the system stops no program that reads.
func foreground(int) bool { return true }
