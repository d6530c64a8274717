package jit

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/aiter-go/aiter/internal/cache"
)

// storeObject records the object of a compile. cost is the time of the compile in seconds,
// which hits count as saved.
func storeObject(store *cache.Dir, key cache.Key, digest string, cost float64) error {
	return store.Put(cache.Object, key, fmt.Appendf(nil, "%s %.3f", digest, cost))
}

func loadObject(store *cache.Dir, key cache.Key) (digest string, cost float64, err error) {
	data, err := store.Get(cache.Object, key)
	if err != nil {
		return "", 0, err
	}
	digest, seconds, _ := strings.Cut(string(data), " ")
	if cost, err = strconv.ParseFloat(seconds, 64); err != nil || !(cost >= 0) {
		cost = 0
	}
	return digest, cost, nil
}
