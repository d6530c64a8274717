package cache

import (
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
)

// size returns the number of stored bytes. It does not count unfinished work, which cleaning
// does not remove.
func (d *Dir) size() int64 {
	var n int64
	d.walk(func(path string, info fs.FileInfo) {
		if d.part(path) != "stage" {
			n += info.Size()
		}
	})
	return n
}

// part returns the name of the folder directly below base in which a path lies.
func (d *Dir) part(path string) string {
	rel, _ := filepath.Rel(d.base, path)
	top, _, _ := strings.Cut(rel, string(filepath.Separator))
	return top
}

// walk visits every regular file of the cache, a file with several names once.
func (d *Dir) walk(visit func(path string, info fs.FileInfo)) {
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	walkFiles(d.base, func(path string, info fs.FileInfo) {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
			id := inode{uint64(st.Dev), st.Ino}
			if seen[id] {
				return
			}
			seen[id] = true
		}
		visit(path, info)
	})
}

// walkBelow visits every file below a folder of the cache.
func (d *Dir) walkBelow(sub string, visit func(path string, info fs.FileInfo)) {
	walkFiles(filepath.Join(d.base, sub), visit)
}

func walkFiles(dir string, visit func(path string, info fs.FileInfo)) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			visit(path, info)
		}
		return nil
	})
}
