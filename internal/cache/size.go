package cache

import (
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/aiter-go/aiter/internal/sys"
)

// size returns the size of all files in bytes. It does not count stages, which Clean does not
// remove.
func (d *Dir) size() int64 {
	var n int64
	d.walk(func(path string, info fs.FileInfo) {
		if d.topFolder(path) != "stage" {
			n += info.Size()
		}
	})
	return n
}

// topFolder returns the name of the folder directly below base that contains a path.
func (d *Dir) topFolder(path string) string {
	rel, _ := filepath.Rel(d.base, path)
	top, _, _ := strings.Cut(rel, string(filepath.Separator))
	return top
}

// walk visits every regular file of the cache, a file with several names once.
func (d *Dir) walk(visit func(path string, info fs.FileInfo)) {
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	walkFiles(d.base, func(path string, info fs.FileInfo) {
		if dev, ino, links, ok := sys.Inode(info); ok && links > 1 {
			id := inode{dev, ino}
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

// walkFiles visits the regular files at or below a path.
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

// sizeOf returns the number of the regular files at or below path, and their bytes.
func sizeOf(path string) (n int, size int64) {
	walkFiles(path, func(_ string, info fs.FileInfo) {
		n++
		size += info.Size()
	})
	return n, size
}
