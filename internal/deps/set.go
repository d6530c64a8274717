package deps

import (
	"encoding/json"
	"errors"

	"github.com/aiter-go/aiter/internal/cache"
)

// Set is the dependencies of one compile of a unit.
type Set struct {
	Tree   string `json:"tree"`   // digest of the list of files in the source tree
	System string `json:"system"` // digest of the list of all others
}

// maxSets is the number of sets that a unit keeps, the latest first. It is enough for
// a header that changes back and forth.
const maxSets = 8

// LoadSets returns the sets of the cache, then those of its read-only caches.
func LoadSets(store *cache.Dir, key cache.Key) ([]Set, error) {
	all := store.GetAll(cache.Manifest, key)
	if len(all) == 0 {
		return nil, &cache.MissError{Kind: cache.Manifest, Key: string(key), Reason: "absent"}
	}
	var vs []Set
	for _, data := range all {
		var more []Set
		if err := json.Unmarshal(data, &more); err != nil {
			return nil, &cache.MissError{Kind: cache.Manifest, Key: string(key), Reason: err.Error()}
		}
		vs = append(vs, more...)
	}
	return vs, nil
}

// StoreSet stores both lists.
func StoreSet(store *cache.Dir, tree, system *List) (v Set, err error) {
	var errT, errS error
	v.Tree, errT = put(store, tree)
	v.System, errS = put(store, system)
	return v, errors.Join(errT, errS)
}

// AddSet puts v first among the sets of a key.
func AddSet(store *cache.Dir, key cache.Key, v Set) error {
	old, _ := LoadSets(store, key)
	vs := []Set{v}
	for _, o := range old {
		if o != v && len(vs) < maxSets {
			vs = append(vs, o)
		}
	}
	data, err := json.Marshal(vs)
	if err != nil {
		return err
	}
	return store.Put(cache.Manifest, key, data)
}
