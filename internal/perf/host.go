package perf

import (
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/aiter-go/aiter/tensor"
)

// defaultCache is the cache size if the system does not report one; maxCache limits a
// reported size.
const (
	defaultCache = 32 << 20
	maxCache     = 512 << 20
)

// cacheFiles returns the folder in which Linux describes the caches of the first processor.
func cacheFiles() fs.FS { return os.DirFS("/sys/devices/system/cpu/cpu0/cache") }

// cacheSize returns twice the size of the largest cache, in bytes. A write of that many
// bytes replaces the contents of the caches.
func cacheSize(files fs.FS) int64 {
	names, _ := fs.Glob(files, "index*/size") // the pattern is valid
	largest := int64(0)
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(text)), "K"), 10, 64)
		if err == nil {
			largest = max(largest, kib<<10)
		}
	}
	if largest == 0 {
		largest = defaultCache
	}
	return 2 * min(largest, maxCache)
}

// evictCaches fills the CPU's caches with other data.
func (m *Meter) evictCaches() {
	const line = 64
	other := make([]byte, m.caches)
	for i := 0; i < len(other); i += line {
		other[i] = byte(i / line)
	}
	runtime.KeepAlive(other)
}

// writePages writes to every page. Pages that were never written share one page of zeros,
// which a copy would read from the cache; the first write to one takes longer than the copy of it.
func writePages(s *tensor.Storage) error {
	bytes, err := s.Bytes()
	for i := 0; i < len(bytes); i += os.Getpagesize() {
		bytes[i] = 1
	}
	return err
}

// copyChunk is the least number of bytes for which one more processor makes a copy faster.
const copyChunk = 1 << 20

// copyHost copies with all processors, as operators do, and small storages with fewer.
func copyHost(dst, src *tensor.Storage) error {
	to, err := dst.Bytes()
	if err != nil {
		return err
	}
	from, err := src.Bytes()
	if err != nil {
		return err
	}
	n := min(runtime.GOMAXPROCS(0), 1+len(from)/copyChunk)
	if n == 1 {
		copy(to, from)
		return nil
	}
	chunk := (len(from) + n - 1) / n
	var wg sync.WaitGroup
	for at := 0; at < len(from); at += chunk {
		end := min(at+chunk, len(from))
		wg.Go(func() { copy(to[at:end], from[at:end]) })
	}
	wg.Wait()
	return nil
}
