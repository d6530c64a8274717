// Package tuning stores the launch parameters that a search chose, in records under the digest of the library that they are for.
package tuning

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
)

// Entry is the choice for a class of shapes of an operator on a device.
type Entry struct {
	Op     string `json:"op"`
	Device string `json:"device"` // its name
	Driver string `json:"driver"` // its version
	Class  string `json:"class"`  // of the arguments, in hex
	Shapes string `json:"shapes"` // the class in words
	// Params are the chosen values by launch parameter. Without values the operator's launch plan is the fastest.
	Params map[string]int64 `json:"params"`
	// PlanUS and TunedUS are the median times of Rounds calls with the launch plan and with Params, in microseconds.
	PlanUS  float64   `json:"plan_us"`
	TunedUS float64   `json:"tuned_us"`
	Rounds  int       `json:"rounds"`
	Time    time.Time `json:"time"`
}

// Words returns the chosen values: "threads=2 tile=64", or "plan".
func (e Entry) Words() string { return Words(e.Params) }

// Words returns values by launch parameter, sorted by name: "threads=2 tile=64". It returns "plan" without values.
func Words(params map[string]int64) string {
	if len(params) == 0 {
		return "plan"
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(params)) {
		words = append(words, fmt.Sprintf("%s=%d", name, params[name]))
	}
	return strings.Join(words, " ")
}

// sameCall reports whether both entries are for the same calls.
func (e Entry) sameCall(other Entry) bool {
	return e.Op == other.Op && e.Device == other.Device && e.Driver == other.Driver && e.Class == other.Class
}

// maxEntries is the largest number of entries of a library. Store drops the oldest ones.
const maxEntries = 4096

// Load returns the entries for the library with that digest: the entries of the cache, then those of its read-only caches for other
// calls. A record that cannot be read counts as empty.
func Load(store *cache.Dir, library string) []Entry {
	var all []Entry
	for _, data := range store.GetAll(cache.Tuning, cache.TuningKey(library)) {
		all = merge(all, decode(data))
	}
	return all
}

func decode(data []byte) []Entry {
	var entries []Entry
	if json.Unmarshal(data, &entries) != nil {
		return nil
	}
	return entries
}

// merge adds the entries of more for whose calls list has no entry.
func merge(list, more []Entry) []Entry {
	for _, e := range more {
		if !slices.ContainsFunc(list, e.sameCall) {
			list = append(list, e)
		}
	}
	return list
}

// Store adds entries for the library with that digest. They replace entries for the same calls. The errors are those of the cache and
// of its locks.
func Store(ctx context.Context, store *cache.Dir, library string, entries ...Entry) error {
	if err := store.Writable(); err != nil {
		return err
	}
	key := cache.TuningKey(library)
	lock, err := store.Lock(ctx, cache.LockRequest{Key: key, What: "write the launch parameters of a library", Timeout: time.Minute})
	if err != nil {
		return err
	}
	all := merge(slices.Clone(entries), Load(store, library))
	slices.SortStableFunc(all, func(a, b Entry) int { return b.Time.Compare(a.Time) })
	data, err := json.Marshal(all[:min(len(all), maxEntries)])
	if err == nil {
		err = store.Put(cache.Tuning, key, data)
	}
	return errors.Join(err, lock.Unlock())
}
