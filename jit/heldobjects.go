package jit

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"github.com/aiter-go/aiter/internal/cache"
)

// heldObjects keeps the objects of a module from their compile to their link, as hard links
// in a locked stage, which no other process removes.
type heldObjects struct {
	store *cache.Dir

	mu    sync.Mutex
	stage *cache.Stage // nil until an object is held
}

// maxRounds is the number of attempts to build a module while other processes remove its
// objects from the cache before the link.
const maxRounds = 10

// hold keeps the object at path for the unit. If that fails, the link uses the cache's
// object.
func (h *heldObjects) hold(unit cache.Key, path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stage == nil {
		var err error
		if h.stage, err = h.store.NewStage(); err != nil {
			h.stage = nil
			return
		}
	}
	name := h.stage.File(string(unit))
	_ = os.Remove(name) // the object of a compile before an edit
	_ = linkOrCopy(path, name)
}

// path returns the path of a unit's object.
func (h *heldObjects) path(ref cache.Ref) (string, error) {
	h.mu.Lock()
	stage := h.stage
	h.mu.Unlock()
	if stage != nil {
		if path := stage.File(string(ref.Unit)); cache.HasDigest(path, ref.Object) {
			return path, nil
		}
	}
	return h.store.Blob(ref.Object)
}

// place creates the file to from a unit's object with put. It fails with [*cache.MissError]
// if another process removed the object, even between the lookup and put.
func (h *heldObjects) place(ref cache.Ref, to string, put func(from, to string) error) error {
	path, err := h.path(ref)
	if err != nil {
		return err
	}
	if err = put(path, to); errors.Is(err, fs.ErrNotExist) {
		return &cache.MissError{Kind: "file", Key: ref.Object, Reason: err.Error()}
	}
	return err
}

// holdAll keeps the objects that exist and removes the records of the others, so that these
// are compiled again.
func (h *heldObjects) holdAll(units []UnitResult) {
	for _, u := range units {
		path, err := h.path(u.ref)
		if err != nil {
			_ = h.store.Forget(cache.Object, u.ref.Result)
			continue
		}
		if h.stage == nil || path != h.stage.File(string(u.ref.Unit)) {
			h.hold(u.ref.Unit, path)
		}
	}
}

func (h *heldObjects) close() {
	if h.stage != nil {
		_ = h.stage.Close() // if this fails, Dir.Sweep removes the stage later
	}
}
