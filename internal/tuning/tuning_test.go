package tuning_test

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/tuning"
)

func openCache(t testing.TB) *cache.Dir {
	t.Helper()
	store, err := cache.Open(t.TempDir(), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func entry(class string, minute int, value int64) tuning.Entry {
	return tuning.Entry{Op: "op", Device: "gpu", Driver: "1", Class: class, Params: map[string]int64{"p": value},
		Time: time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)}
}

func TestStore(t *testing.T) {
	store, digest := openCache(t), cache.SHA256([]byte("library"))
	put := func(entries ...tuning.Entry) {
		t.Helper()
		if err := tuning.Store(t.Context(), store, digest, entries...); err != nil {
			t.Fatal(err)
		}
	}
	put(entry("a", 1, 1), entry("b", 2, 2))
	put(entry("a", 3, 9)) // replaces the first
	want := []tuning.Entry{entry("a", 3, 9), entry("b", 2, 2)}
	if got := tuning.Load(store, digest); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := tuning.Load(store, cache.SHA256([]byte("other"))); len(got) > 0 {
		t.Errorf("another library has %v", got)
	}
	// The user's entries come before those of a read-only cache.
	above := openCache(t)
	above.AddReadOnly(store)
	if err := tuning.Store(t.Context(), above, digest, entry("b", 0, 5)); err != nil {
		t.Fatal(err)
	}
	if got := tuning.Load(above, digest); len(got) != 2 || got[0].Words() != "p=9" || got[1].Words() != "p=5" {
		t.Errorf("above: %v", got)
	}
	for _, damage := range []string{"", "{}", `[{"op":1}]`, "[null", "\x00"} {
		if err := store.Put(cache.Tuning, cache.TuningKey(digest), []byte(damage)); err != nil {
			t.Fatal(err)
		}
		if got := tuning.Load(store, digest); len(got) > 0 {
			t.Errorf("%q: %v", damage, got)
		}
	}
}

// Concurrent calls of Store keep all entries. Above the limit Store drops the oldest ones.
func TestStoreTogether(t *testing.T) {
	store, digest := openCache(t), cache.SHA256([]byte("library"))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := tuning.Store(context.Background(), store, digest, entry(fmt.Sprint(i), i, 1)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := tuning.Load(store, digest); len(got) != 8 || got[0].Class != "7" {
		t.Errorf("%d entries: %v", len(got), got)
	}
	var many []tuning.Entry
	for i := range 5000 {
		many = append(many, entry(fmt.Sprintf("m%d", i), 10+i, 1))
	}
	if err := tuning.Store(t.Context(), store, digest, many...); err != nil {
		t.Fatal(err)
	}
	if got := tuning.Load(store, digest); len(got) != 4096 || got[0].Class != "m4999" {
		t.Errorf("%d entries", len(got))
	}
}

func TestWords(t *testing.T) {
	if got := tuning.Words(map[string]int64{"tile": 64, "blocks": -1}); got != "blocks=-1 tile=64" {
		t.Error(got)
	}
	if got := tuning.Words(nil); got != "plan" {
		t.Error(got)
	}
}
