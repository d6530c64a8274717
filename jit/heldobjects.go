package jit

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"github.com/aiter-go/aiter/internal/cache"
)

// heldObjects keep the objects of a module from their compile to their link, whoever
// cleans the cache meanwhile: as further names in a stage, which is locked.
type heldObjects struct {
	store *cache.Dir

	mu    sync.Mutex
	stage *cache.Stage // nil until something is kept
}

// maxLost is how often a module's units are looked up again because an object
// was cleaned away before its link.
const maxLost = 10

// hold keeps the object at path for the unit; where that fails the cache's own
// has to do.
func (p *heldObjects) hold(unit cache.Key, path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stage == nil {
		var err error
		if p.stage, err = p.store.NewStage(); err != nil {
			p.stage = nil
			return
		}
	}
	name := p.stage.File(string(unit))
	_ = os.Remove(name) // of a compile before an edit
	_ = linkOrCopy(path, name)
}

// path returns where the object of a unit is.
func (p *heldObjects) path(ref cache.Ref) (string, error) {
	p.mu.Lock()
	stage := p.stage
	p.mu.Unlock()
	if stage != nil {
		if path := stage.File(string(ref.Unit)); cache.HasDigest(path, ref.Object) {
			return path, nil
		}
	}
	return p.store.Blob(ref.Object)
}

// place has put make a file of a unit's object. One that was cleaned away between the
// look at it and put is missing like one that was gone before.
func (p *heldObjects) place(ref cache.Ref, to string, put func(from, to string) error) error {
	path, err := p.path(ref)
	if err != nil {
		return err
	}
	if err = put(path, to); errors.Is(err, fs.ErrNotExist) {
		return &cache.MissError{Kind: "file", Key: ref.Object, Reason: err.Error()}
	}
	return err
}

// holdAll keeps what is still there of the objects that were found, and has those
// compiled that are lost.
func (p *heldObjects) holdAll(units []UnitResult) {
	for _, u := range units {
		path, err := p.path(u.ref)
		if err != nil {
			_ = p.store.Forget(cache.Object, u.ref.Result)
			continue
		}
		if p.stage == nil || path != p.stage.File(string(u.ref.Unit)) {
			p.hold(u.ref.Unit, path)
		}
	}
}

func (p *heldObjects) close() {
	if p.stage != nil {
		_ = p.stage.Close() // else swept away later
	}
}
