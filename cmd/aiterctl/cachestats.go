package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
)

func (a *app) cacheStats(ctx context.Context) error {
	store, err := a.openCache(ctx)
	if err != nil {
		return err
	}
	s, err := store.Stats()
	if err != nil {
		return err
	}
	if a.json {
		s.Artifacts, s.Modules, s.Targets = nonNil(s.Artifacts), nonNil(s.Modules), nonNil(s.Targets)
		s.Counts, s.ReadOnly = nonNil(s.Counts), nonNil(s.ReadOnly)
		return a.writeJSON(s)
	}
	rows := [][]string{{"MODULE", "TARGET", "SIZE", "LAST USED", "DIGEST"}}
	for _, x := range s.Artifacts {
		rows = append(rows, []string{partName(x.Module, x.Part), x.Target, sizeWords(x.Size), age(time.Since(x.Used)) + " ago", cache.Key(x.Digest).Short()})
	}
	if err := a.table(rows); err != nil {
		return err
	}
	if err := a.printShares(s); err != nil {
		return err
	}
	a.printCounts(s)
	_, err = fmt.Fprintf(a.out, "\n%s: %s%s in %d artifacts and %d objects, %.1f s of compiling; %d corrupt, %d unfinished files\n",
		s.Path, sizeWords(s.Bytes), ofLimit(s.Limits), len(s.Artifacts), s.Objects, s.Seconds, s.Corrupt, s.Unfinished)
	if err == nil && len(s.ReadOnly) > 0 {
		_, err = fmt.Fprintf(a.out, "below it, only read: %s\n", strings.Join(s.ReadOnly, ", "))
	}
	return err
}

func ofLimit(l cache.Limits) string {
	if l.Size == 0 {
		return ""
	}
	return " of at most " + sizeWords(l.Size)
}

// printShares tells the sizes by module and by target.
func (a *app) printShares(s cache.Stats) error {
	if len(s.Artifacts) == 0 {
		return nil
	}
	fmt.Fprintln(a.out)
	rows := [][]string{{"OF", "ARTIFACTS", "SIZE WITH OBJECTS AND RECORDS"}}
	for _, list := range [][]cache.Share{s.Modules, s.Targets} {
		for _, x := range list {
			rows = append(rows, []string{x.Name, fmt.Sprint(x.Artifacts), sizeWords(x.Bytes)})
		}
	}
	return a.table(rows)
}

func (a *app) printCounts(s cache.Stats) {
	if s.Hits+s.Misses == 0 {
		return
	}
	fmt.Fprintf(a.out, "\nunits: %d hits, %d misses; %.1f s of compiling saved\n", s.Hits, s.Misses, s.Saved)
	for _, c := range s.Counts {
		if c.Event == cache.UnitMiss {
			fmt.Fprintf(a.out, "  %6d  %s (%.1f s)\n", c.N, firstOf(c.Cause, "unknown"), c.Seconds)
		}
	}
}
