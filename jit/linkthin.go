package jit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/aiter-go/aiter/internal/depfile"
)

// withMembers adds the members of thin archives to the files that a linker reported; linkers leave them out. Members
// that do not exist are in the second list: a linker fails only if it needs their symbols. The error means that the
// members of some archive are not known.
func (l *link) withMembers(reported []string) (read, missing []string, err error) {
	seen := map[string]bool{}
	queue := slices.Clone(reported)
	for i := 0; i < len(queue); i++ { // members may be thin archives
		p := queue[i]
		if seen[p] {
			continue
		}
		seen[p] = true
		f, err := os.OpenFile(l.tc.Resolve(p), os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would wait for its writer
		switch {
		case err != nil && i < len(reported): // gone by now, such as a temporary file
			read = append(read, p)
			continue
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, p)
			continue
		case err != nil:
			return nil, nil, err
		}
		members, err := membersOf(p, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, nil, err
		}
		read, queue = append(read, p), append(queue, members...)
	}
	return read, missing, nil
}

// membersOf returns the paths of the members if the file at p is a thin archive.
func membersOf(p string, f *os.File) ([]string, error) {
	members, err := depfile.ThinMembers(f)
	for i, m := range members {
		if !path.IsAbs(m) {
			members[i] = path.Dir(p) + "/" + m // not cleaned: ".." behind a link is another folder
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p, err)
	}
	return members, nil
}
