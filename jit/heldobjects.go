package jit

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"github.com/aiter-go/aiter/internal/cache"
)

// heldObjects keeps the objects of a module from their compile to their link, as links in
// a locked stage that no process cleans away.
type heldObjects struct {
	store *cache.Dir

	mu    sync.Mutex
	stage *cache.Stage // nil until an object is held
}

// maxLost is the number of lookups of a module's units when objects are cleaned away
// before the link.
const maxLost = 10

// hold keeps the object at path for the unit. If that fails, the link uses the cache's
// object.
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

// path returns the path of a unit's object.
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

// place makes a file of a unit's object with put. It fails with [*cache.MissError] if the
// object was cleaned away, even between the lookup and put.
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

// holdAll keeps the objects that still exist and removes the records of the others, so
// that these are compiled again.
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
		_ = p.stage.Close() // an open stage is swept away later
	}
}
