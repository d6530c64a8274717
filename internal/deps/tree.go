package deps

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/sys"
)

// Tree is the folder of sources of a configuration. Paths are relative to it, with
// forward slashes.
type Tree interface {
	// Digest returns the SHA-256 of a file, in hex.
	Digest(path string) (string, error)
	// Path returns the path of a file on disk. onDisk is false if the program contains the
	// file, so that it cannot change.
	Path(path string) (file string, onDisk bool)
	// Names returns the names in a folder, none if it does not exist.
	Names(dir string) map[string]bool
	// Dir returns the folder on disk in which compilers run.
	Dir(ctx context.Context) (string, error)
}

// DirTree is a checkout, whose files may change.
type DirTree struct {
	dir  string
	memo *filehash.Memo
}

var _ Tree = (*DirTree)(nil)

// NewDirTree returns the tree below the folder dir, which must exist.
func NewDirTree(dir string, memo *filehash.Memo) (*DirTree, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("source folder %s: %w", dir, err)
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, fmt.Errorf("source folder: %w; give a checkout with the folders config and csrc", err)
	}
	return &DirTree{dir: abs, memo: memo}, nil
}

// Digest implements [Tree].
func (t *DirTree) Digest(path string) (string, error) {
	return t.memo.Digest(filepath.Join(t.dir, filepath.FromSlash(path)))
}

// Path implements [Tree].
func (t *DirTree) Path(path string) (string, bool) {
	return filepath.Join(t.dir, filepath.FromSlash(path)), true
}

// Names implements [Tree].
func (t *DirTree) Names(dir string) map[string]bool {
	return namesIn(filepath.Join(t.dir, filepath.FromSlash(dir)))
}

// Dir implements [Tree].
func (t *DirTree) Dir(context.Context) (string, error) { return t.dir, nil }

// EmbeddedTree is the source tree that a program contains. It is extracted to disk when a
// compiler first runs.
type EmbeddedTree struct {
	files fs.FS
	store *cache.Dir // contains the folder of the tree

	checking sync.Mutex // held during a check
	digest   string     // of all files; "" until first used
	held     *os.File   // the open folder, whose lock prevents its removal

	mu   sync.Mutex
	next *treeCheck // has not begun; nil: no caller waits for one

	digests sync.Map // path -> SHA-256 of a file, in hex
}

// treeCheck is a check of the tree on disk. All callers that arrive before it begins share it.
type treeCheck struct {
	done chan struct{} // closed at its end
	dir  string
	err  error
}

var _ Tree = (*EmbeddedTree)(nil)

// NewEmbeddedTree returns a tree of the given files, which it extracts to a folder of the cache.
func NewEmbeddedTree(files fs.FS, store *cache.Dir) *EmbeddedTree {
	return &EmbeddedTree{files: files, store: store}
}

// Digest implements [Tree].
func (t *EmbeddedTree) Digest(path string) (string, error) {
	if known, ok := t.digests.Load(path); ok {
		return known.(string), nil
	}
	data, err := fs.ReadFile(t.files, path)
	if err != nil {
		return "", err
	}
	digest := cache.SHA256(data)
	t.digests.Store(path, digest)
	return digest, nil
}

// Path implements [Tree].
func (t *EmbeddedTree) Path(string) (string, bool) { return "", false }

// Names implements [Tree].
func (t *EmbeddedTree) Names(dir string) map[string]bool {
	entries, _ := fs.ReadDir(t.files, dir)
	names := make(map[string]bool, len(entries))
	for _, e := range entries {
		names[e.Name()] = true
	}
	return names
}

// Dir implements [Tree]. It checks the files on disk after each call: keys contain the
// digests of the embedded files, so a compiler must not read edited ones. It fails with
// [*cache.AccessError] if the tree cannot be written.
func (t *EmbeddedTree) Dir(context.Context) (string, error) {
	t.mu.Lock()
	c := t.next
	if c != nil {
		t.mu.Unlock()
		<-c.done
		return c.dir, c.err
	}
	c = &treeCheck{done: make(chan struct{})}
	t.next = c
	t.mu.Unlock()

	t.checking.Lock()
	defer t.checking.Unlock()
	t.mu.Lock()
	t.next = nil // later callers need a later check
	t.mu.Unlock()
	c.dir, c.err = t.checkedDir()
	close(c.done)
	return c.dir, c.err
}

// checkedDir returns the folder of the tree. It extracts the tree if it is not intact.
func (t *EmbeddedTree) checkedDir() (string, error) {
	if t.digest == "" {
		digest, err := treeDigest(t.files)
		if err != nil {
			return "", err
		}
		t.digest = digest
	}
	dir := filepath.Join(t.store.SourcesPath(), t.digest[:treeNameSize])
	var err error
	for range extractTries {
		if t.hold(dir) && t.intact(dir) {
			return dir, nil
		}
		err = t.extract(dir)
	}
	return "", &cache.AccessError{Path: t.store.SourcesPath(), Op: "extract the sources to", Err: cmp.Or(err, errChanging)}
}

var errIrregular = errors.New("it is not a regular file")

var errChanging = errors.New("another process changes or removes it again and again")

// treeNameSize is the number of digits of the digest in the name of a tree on disk.
const treeNameSize = 32

// extractTries is the number of attempts to extract a tree while other processes write or
// remove it.
const extractTries = 5

// hold locks the folder, so that it is not removed while the tree is in use.
func (t *EmbeddedTree) hold(dir string) bool {
	if t.held != nil {
		info, err := os.Lstat(dir)
		held, bad := t.held.Stat()
		if err == nil && bad == nil && os.SameFile(info, held) {
			return true
		}
		_ = t.held.Close() // nothing was written through it
	}
	t.held = cache.HoldFolder(dir)
	return t.held != nil
}

// intact reports whether dir holds exactly the files of the tree, and no other user
// can change them.
func (t *EmbeddedTree) intact(dir string) bool {
	if t.store.CheckTree(dir) != nil {
		return false
	}
	got, err := treeDigest(os.DirFS(dir))
	return err == nil && got == t.digest
}

// extract writes the tree to dir, completely or not at all. It replaces a folder that
// is not intact.
func (t *EmbeddedTree) extract(dir string) error {
	below := t.store.SourcesPath()
	if err := os.MkdirAll(below, 0o700); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(below, "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	lock, err := os.Open(tmp) // a concurrent sweep removes unlocked folders
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := sys.Flock(lock, sys.Exclusive|sys.NoWait); errors.Is(err, syscall.EWOULDBLOCK) {
		return err // the sweep removes it
	}
	tree := filepath.Join(tmp, "tree")
	if err := errors.Join(os.CopyFS(tree, t.files), cache.DropSharedWrite(tree)); err != nil {
		return err
	}
	err = os.Rename(tree, dir)
	if err == nil || cache.IsFolder(dir) && t.intact(dir) {
		return nil
	}
	if err := os.Rename(dir, filepath.Join(tmp, "old")); err != nil {
		return err
	}
	return os.Rename(tree, dir)
}

// treeDigest hashes the names and contents of all files. It fails on anything but files
// and folders: reading a named pipe could block.
func treeDigest(files fs.FS) (string, error) {
	h := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if !e.Type().IsRegular() {
			return &fs.PathError{Op: "read", Path: path, Err: errIrregular}
		}
		data, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %d\n", path, len(data))
		_, err = h.Write(data)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

// namesIn returns the names in a folder, none if it cannot be read.
func namesIn(dir string) map[string]bool {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	list, _ := f.Readdirnames(-1)
	names := make(map[string]bool, len(list))
	for _, n := range list {
		names[n] = true
	}
	return names
}

// IsTreeName reports whether a folder of that name holds a complete tree. Trees that are
// being written have other names.
func IsTreeName(name string) bool {
	_, err := hex.DecodeString(name)
	return err == nil && len(name) == treeNameSize
}

// TreeFault returns the damage of the embedded tree that was written to dir, "" if there
// is none.
func TreeFault(dir, name string) string {
	if !cache.IsFolder(dir) {
		return "it is not a folder"
	}
	digest, err := treeDigest(os.DirFS(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "" // removed meanwhile
	case err != nil:
		return err.Error()
	case digest[:treeNameSize] != name:
		return "its files have the digest " + digest[:treeNameSize]
	}
	return ""
}
