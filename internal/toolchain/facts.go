package toolchain

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/aiter-go/aiter/internal/sys"
)

// factKind is the state that a fact describes.
type factKind byte

const (
	factPresent  factKind = 'f' // the name exists
	factAbsent   factKind = 'm' // the name does not exist
	factLink     factKind = 'l' // the name is a symbolic link with this text
	factResolved factKind = 'p' // the name is this path after following all links
)

// fact is the state of a name on which an answer depends: the kind, the path, a NUL byte and the text.
type fact string

// newFact returns the present state of a name.
func newFact(kind factKind, host string) fact {
	text := ""
	switch kind {
	case factLink:
		text, _ = os.Readlink(host)
	case factResolved:
		text, _ = filepath.EvalSymlinks(host)
	}
	return fact(string(kind) + host + "\x00" + text)
}

func (f fact) holds() bool {
	host, text, ok := strings.Cut(string(f[1:]), "\x00")
	if !ok {
		return false
	}
	switch kind := factKind(f[0]); kind {
	case factPresent:
		_, err := os.Lstat(host)
		return err == nil
	case factAbsent:
		return missing(host)
	default:
		return text != "" && newFact(kind, host) == f
	}
}

func missing(host string) bool {
	_, err := os.Stat(host)
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR)
}

// topmost returns the fact about the first absent folder on the path, because many names are searched in few folders.
func topmost(f fact) fact {
	host := strings.TrimSuffix(string(f[1:]), "\x00")
	for above := filepath.Dir(host); above != host && missing(above); above = filepath.Dir(above) {
		host = above
	}
	return newFact(factAbsent, host)
}

// stamp is the state of a folder in which new names could change an answer. It has the change time, because programs can
// set the modification time back.
type stamp struct {
	Path  string // on this machine
	CTime int64  // nanoseconds since 1970, -1 if there is no such folder
	Inode uint64 `json:",omitempty"`
	Dev   uint64 `json:",omitempty"`
	Names string `json:",omitempty"` // digest of the listing, on filesystems whose times prove nothing
}

func stampOf(dir string) stamp {
	var st sys.Stat
	if err := sys.StatFile(dir, &st); err != nil {
		return stamp{Path: dir, CTime: -1}
	}
	s := stamp{Path: dir, CTime: st.Ctim.Nano(), Inode: st.Ino, Dev: uint64(st.Dev)} //nolint:unconvert // 32 bits wide elsewhere
	if fixedTimes(dir) {
		s.Names = listing(dir)
	}
	return s
}

// fixedTimes reports whether the folder is on a filesystem that is mounted read-only. In an image all folders have one
// time, and inodes follow from positions, so that another version of the image can have the same ones.
func fixedTimes(dir string) bool {
	return sys.ReadOnly(dir)
}

func listing(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Sprint("unreadable: ", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return sum(strings.Join(names, "\x00"))
}

// settled reports whether the stamps are so old that a later change gives other stamps.
func (r *record) settled(now time.Time) bool {
	for _, w := range r.Watch {
		if w.CTime >= 0 && now.Sub(time.Unix(0, w.CTime)) < settled {
			return false
		}
	}
	return true
}
