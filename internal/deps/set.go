package deps

import (
	"encoding/json"
	"errors"

	"github.com/aiter-go/aiter/internal/cache"
)

// Set names the two dependency lists of one compile of a unit.
type Set struct {
	Tree   string `json:"tree"`   // digest of the list of files in the source tree
	System string `json:"system"` // digest of the list of all others
}

// maxSets is the number of sets that a unit keeps, the latest first. It is enough for
// a header that changes back and forth.
const maxSets = 8

// LoadSets returns the sets under the key of a unit: those of the cache, then those of its
// read-only caches. It fails with [*cache.MissError].
func LoadSets(store *cache.Dir, key cache.Key) ([]Set, error) {
	all := store.GetAll(cache.Manifest, key)
	if len(all) == 0 {
		return nil, &cache.MissError{Kind: cache.Manifest, Key: string(key), Reason: "absent"}
	}
	var sets []Set
	for _, data := range all {
		var more []Set
		if err := json.Unmarshal(data, &more); err != nil {
			return nil, &cache.MissError{Kind: cache.Manifest, Key: string(key), Reason: err.Error()}
		}
		sets = append(sets, more...)
	}
	return sets, nil
}

// StoreSet stores both lists and returns their set.
func StoreSet(store *cache.Dir, tree, system *List) (set Set, err error) {
	var errTree, errSystem error
	set.Tree, errTree = put(store, tree)
	set.System, errSystem = put(store, system)
	return set, errors.Join(errTree, errSystem)
}

// AddSet stores a set as the first one under the key of a unit, with the latest of the others.
func AddSet(store *cache.Dir, key cache.Key, set Set) error {
	old, _ := LoadSets(store, key) // none if there is no valid record
	sets := []Set{set}
	for _, o := range old {
		if o != set && len(sets) < maxSets {
			sets = append(sets, o)
		}
	}
	data, err := json.Marshal(sets)
	if err != nil {
		return err
	}
	return store.Put(cache.Manifest, key, data)
}
