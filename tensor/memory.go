package tensor

// checkMemory returns a *MemoryError for sizes beyond the machine's memory and swap, because Go ends
// the process at such an allocation. The memory that other programs use does not count.
func checkMemory(n int64) error {
	if memory := physicalMemory(); n > memory {
		return &MemoryError{Size: n, Memory: memory}
	}
	return nil
}
