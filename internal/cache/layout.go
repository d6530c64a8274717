package cache

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// layoutVersion is the version of the layout of a cache: folders, records, descriptions,
// counts. Each version has a folder of its own, so that programs of several versions can share
// a cache folder.
//
//	1: the checksum of a record covered the body alone
//	2: it covers kind and key as well; artifact.json and the lines of counts have checksums
const layoutVersion = 2

// layout is the name of the folder of this version.
const layout = "v2"

// LayoutError reports a cache folder whose entries all have the layout of another version.
type LayoutError struct {
	Found string // "v1"
}

func (e *LayoutError) Error() string {
	return fmt.Sprintf("another version of this program made it (layout %s, expected %s)", e.Found, layout)
}

// Is reports whether target is fs.ErrNotExist.
func (e *LayoutError) Is(target error) bool { return target == fs.ErrNotExist }

// otherLayouts returns the folders of other versions in the cache folder at path.
func otherLayouts(path string) (names []string) {
	entries, _ := os.ReadDir(path)
	for _, e := range entries {
		if n := layoutNumber(e.Name()); e.IsDir() && n > 0 && n != layoutVersion && IsFolder(filepath.Join(path, e.Name(), "record")) {
			names = append(names, e.Name())
		}
	}
	return names
}

// layoutNumber returns the version in the name of a layout folder, 0 for other names.
func layoutNumber(name string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "v"))
	if err != nil || name != fmt.Sprintf("v%d", n) {
		return 0
	}
	return n
}

// Outdated returns the layout of an older version of this program that has a record under that
// key in this cache folder, "" if none has.
func (d *Dir) Outdated(kind Kind, key Key) string {
	for _, name := range otherLayouts(d.path) {
		older := &Dir{base: filepath.Join(d.path, name)}
		if layoutNumber(name) < layoutVersion && present(older.recordPath(kind, key)) {
			return name
		}
	}
	return ""
}

// sweepLayouts removes the layout folders of older versions of this program that have not been
// used for that long.
func (d *Dir) sweepLayouts(age time.Duration, dryRun bool, rep *CleanReport) {
	for _, name := range otherLayouts(d.path) {
		path := filepath.Join(d.path, name)
		if layoutNumber(name) > layoutVersion || time.Since(lastUse(path)) < age {
			continue
		}
		n, size := sizeOf(path)
		if dryRun || d.removeFolder(path) == nil {
			rep.Orphans += n
			rep.Bytes += size
		}
	}
}

// lastUse returns when builds last used the layout folder at path: each build appends to
// counts, and sets the time of an artifact that it uses.
func lastUse(path string) time.Time {
	var last time.Time
	used := (&Dir{base: path}).matching("artifact/*")
	for _, p := range append(used, path, filepath.Join(path, "counts"), filepath.Join(path, "stage")) {
		if info, err := os.Lstat(p); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}
