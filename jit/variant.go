package jit

import (
	"encoding/json"
	"errors"

	"github.com/aiter-go/aiter/internal/cache"
)

// variant is one set of dependencies under which a unit was compiled, or a
// module linked.
type variant struct {
	Tree   string `json:"tree"`   // digest of the list of files in the source tree
	System string `json:"system"` // digest of the list of all others
}

// maxVariants is how many are remembered a unit, the latest first: enough for
// a header that is edited to and fro.
const maxVariants = 8

// loadVariants returns those of the cache, then those of its tiers.
func loadVariants(store *cache.Dir, key cache.Key) ([]variant, error) {
	all := store.GetAll(cache.Manifest, key)
	if len(all) == 0 {
		return nil, &cache.MissError{Kind: cache.Manifest, Key: string(key), Reason: "absent"}
	}
	var vs []variant
	for _, data := range all {
		var more []variant
		if err := json.Unmarshal(data, &more); err != nil {
			return nil, &cache.MissError{Kind: cache.Manifest, Key: string(key), Reason: err.Error()}
		}
		vs = append(vs, more...)
	}
	return vs, nil
}

// storeVariant stores both lists.
func storeVariant(store *cache.Dir, tree, system *depList) (v variant, err error) {
	var errT, errS error
	v.Tree, errT = storeDeps(store, tree)
	v.System, errS = storeDeps(store, system)
	return v, errors.Join(errT, errS)
}

// rememberVariant puts v first among the variants of a key.
func rememberVariant(store *cache.Dir, key cache.Key, v variant) error {
	old, _ := loadVariants(store, key)
	vs := []variant{v}
	for _, o := range old {
		if o != v && len(vs) < maxVariants {
			vs = append(vs, o)
		}
	}
	data, err := json.Marshal(vs)
	if err != nil {
		return err
	}
	return store.Put(cache.Manifest, key, data)
}
