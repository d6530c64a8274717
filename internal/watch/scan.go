package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/jit"
)

// contents maps paths to the SHA-256 of the file, [jit.Absent], or a word for an entry without
// a digest.
type contents map[string]string

// present stands for a file whose content does not matter.
const present = "present"

// largePrefix begins the word for a file that is too large to be read.
const largePrefix = "large: "

// differences returns the kind of change of each path that differs between known and now.
func differences(known, now contents) map[string]string {
	out := map[string]string{}
	for path, is := range now {
		was := known[path]
		switch {
		case is == was:
		case was == jit.Absent:
			out[path] = Appeared
		case is == jit.Absent:
			out[path] = Gone
		default:
			out[path] = Changed
		}
	}
	for path, was := range known {
		if _, scanned := now[path]; !scanned && was != jit.Absent {
			out[path] = Gone // a match of a glob, a file of a folder
		}
	}
	return out
}

// scan is one check of the files. It reads each path at most once.
type scan struct {
	memo *filehash.Memo
	seen contents
}

func newScan(memo *filehash.Memo) *scan { return &scan{memo: memo, seen: contents{}} }

// group returns the present contents of a group's files.
func (s *scan) group(g *group) contents {
	now := contents{}
	for _, glob := range g.globs {
		// The pattern is valid: the configuration was read with it.
		matches, _ := fs.Glob(os.DirFS(glob.Root), glob.Pattern)
		for _, match := range matches {
			if info, err := os.Stat(globbed(glob, match)); err == nil && info.Mode().IsRegular() {
				now[globbed(glob, match)] = present
			}
		}
	}
	for path, was := range g.known {
		if was != present && !strings.HasPrefix(was, largePrefix) {
			now[path] = s.content(path)
		}
	}
	for _, dir := range g.folders {
		s.walk(dir, now)
	}
	return now
}

// globbed returns the path of a match on disk.
func globbed(g jit.Glob, match string) string {
	return filepath.Join(g.Root, filepath.FromSlash(match))
}

// content is like read, and reads each path once.
func (s *scan) content(path string) string {
	if is, ok := s.seen[path]; ok {
		return is
	}
	is := s.read(path)
	s.seen[path] = is
	return is
}

// read returns a file's digest, or a word for an entry without one.
func (s *scan) read(path string) string {
	sum, err := s.memo.Digest(path)
	if err == nil {
		return sum
	}
	if info, lerr := os.Lstat(path); lerr == nil {
		return "no file: " + info.Mode().Type().String() // a folder, a link to nothing
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return jit.Absent
	}
	return "unreadable: " + err.Error()
}

// Bounds of the scan of a folder, because a checkout may contain much data.
const (
	maxFiles = 20_000  // further files are not watched
	maxHash  = 4 << 20 // bytes; a larger file is compared by size and time
)

// walk adds the files in and below a folder. It skips hidden ones, which belong to editors and
// version control, and does not follow symlinks to folders.
func (s *scan) walk(dir string, now contents) {
	files := 0
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		hidden := e != nil && path != dir && strings.HasPrefix(e.Name(), ".")
		switch {
		case err != nil:
			return nil // removed meanwhile, or unreadable for this user
		case hidden && e.IsDir():
			return fs.SkipDir
		case hidden || e.IsDir():
			return nil
		}
		if files++; files > maxFiles {
			return fs.SkipAll
		}
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			return nil
		}
		if _, scanned := now[path]; !scanned {
			now[path] = s.inFolder(path, info)
		}
		return nil
	})
}

// inFolder returns the content of a file that may be unrelated to the build.
func (s *scan) inFolder(path string, info fs.FileInfo) string {
	if info.Size() > maxHash {
		return fmt.Sprintf("%s%d bytes of %s", largePrefix, info.Size(), info.ModTime())
	}
	return s.content(path)
}
