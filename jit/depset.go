package jit

import (
	"encoding/json"
	"errors"

	"github.com/aiter-go/aiter/internal/cache"
)

// depSet is one set of dependencies under which a unit was compiled, or a
// module linked.
type depSet struct {
	Tree   string `json:"tree"`   // digest of the list of files in the source tree
	System string `json:"system"` // digest of the list of all others
}

// maxDepSets is how many are remembered a unit, the latest first: enough for
// a header that is edited to and fro.
const maxDepSets = 8

// loadDepSets returns those of the cache, then those of its tiers.
func loadDepSets(store *cache.Dir, key cache.Key) ([]depSet, error) {
	all := store.GetAll(cache.Manifest, key)
	if len(all) == 0 {
		return nil, &cache.MissError{Kind: cache.Manifest, Key: string(key), Reason: "absent"}
	}
	var vs []depSet
	for _, data := range all {
		var more []depSet
		if err := json.Unmarshal(data, &more); err != nil {
			return nil, &cache.MissError{Kind: cache.Manifest, Key: string(key), Reason: err.Error()}
		}
		vs = append(vs, more...)
	}
	return vs, nil
}

// storeDepSet stores both lists.
func storeDepSet(store *cache.Dir, tree, system *depList) (v depSet, err error) {
	var errT, errS error
	v.Tree, errT = storeDeps(store, tree)
	v.System, errS = storeDeps(store, system)
	return v, errors.Join(errT, errS)
}

// addDepSet puts v first among the variants of a key.
func addDepSet(store *cache.Dir, key cache.Key, v depSet) error {
	old, _ := loadDepSets(store, key)
	vs := []depSet{v}
	for _, o := range old {
		if o != v && len(vs) < maxDepSets {
			vs = append(vs, o)
		}
	}
	data, err := json.Marshal(vs)
	if err != nil {
		return err
	}
	return store.Put(cache.Manifest, key, data)
}
