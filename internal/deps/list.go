// Package deps records the dependencies of a compile: the files that it read, and the
// names that it looked up and did not find. A [View] checks such lists against the
// filesystem.
package deps

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/cache"
)

// List is the dependency list of one compile: the files that it read, and the names that it
// looked up and did not find. The compiler would read a file that appears under such a name.
type List struct {
	Files     []File
	Absent    []Absence
	Folders   []File   // folders with the digest of all names in them
	Blocked   []string // names of entries that are not files, such as folders; the compiler would read a file there
	Untracked []string // files that embed files with unknown names, so that the list is always stale
}

// File is a file that was read, with its SHA-256 in hex. A relative path is in the source tree.
// An absolute path is that in the compiler's filesystem; see toolchain.Toolchain.Resolve.
type File struct{ Path, Digest string }

// Absence is a name that was not in a folder.
type Absence struct{ Dir, Name string }

// encode writes the list as sorted lines, so that equal lists have equal digests.
func (l *List) encode() []byte {
	byPath := func(a, b File) int { return strings.Compare(a.Path, b.Path) }
	slices.SortFunc(l.Files, byPath)
	slices.SortFunc(l.Folders, byPath)
	slices.Sort(l.Blocked)
	slices.Sort(l.Untracked)
	slices.SortFunc(l.Absent, func(a, b Absence) int { return strings.Compare(a.Dir+"\t"+a.Name, b.Dir+"\t"+b.Name) })
	var b strings.Builder
	for _, f := range l.Files {
		fmt.Fprintf(&b, "F\t%s\t%s\n", f.Digest, f.Path)
	}
	for _, a := range l.Absent {
		fmt.Fprintf(&b, "A\t%s\t%s\n", a.Name, a.Dir)
	}
	for _, f := range l.Folders {
		fmt.Fprintf(&b, "D\t%s\t%s\n", f.Digest, f.Path)
	}
	for _, p := range l.Blocked {
		fmt.Fprintf(&b, "B\tfile\t%s\n", p)
	}
	for _, p := range l.Untracked {
		fmt.Fprintf(&b, "U\tembedded\t%s\n", p)
	}
	return []byte(b.String())
}

// decode reads the output of encode.
func decode(data []byte) (*List, error) {
	l := new(List)
	for line := range strings.Lines(string(data)) {
		kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		first, second, ok := strings.Cut(rest, "\t")
		switch {
		case ok && kind == "F" && first != "" && second != "":
			l.Files = append(l.Files, File{second, first})
		case ok && kind == "A" && first != "" && second != "":
			l.Absent = append(l.Absent, Absence{second, first})
		case ok && kind == "D" && first != "" && second != "":
			l.Folders = append(l.Folders, File{second, first})
		case ok && kind == "B" && second != "":
			l.Blocked = append(l.Blocked, second)
		case ok && kind == "U" && second != "":
			l.Untracked = append(l.Untracked, second)
		default:
			return nil, fmt.Errorf("dependency list: expected a kind, a digest or name, and a path, got %q", line)
		}
	}
	return l, nil
}

// Load reads a list by its digest.
func Load(store *cache.Dir, digest string) (*List, error) {
	data, err := store.Get(cache.DepList, cache.Key(digest))
	if err != nil {
		return nil, err
	}
	return decode(data)
}

// put writes a list and returns its digest.
func put(store *cache.Dir, l *List) (string, error) {
	data := l.encode()
	digest := cache.SHA256(data)
	if _, err := store.Get(cache.DepList, cache.Key(digest)); err == nil {
		return digest, nil
	}
	return digest, store.Put(cache.DepList, cache.Key(digest), data)
}
