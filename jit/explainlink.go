package jit

import (
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// LinkExplanation is the part of an [Explanation] for the link.
type LinkExplanation struct {
	Key     cache.Key   `json:"key"`    // "" until all objects are known
	Status  Status      `json:"status"` // Hit, or Compiled: what a build would do now
	Reason  string      `json:"reason"`
	Miss    Miss        `json:"miss,omitzero"` // zero for a hit
	Lines   cache.Lines `json:"lines"`
	Changes []Change    `json:"changes"`
}

// unknownObject stands for an object that is not compiled yet.
const unknownObject = "(to be compiled)"

// explain explains the link by the result of its plan's lookup.
func (l *link) explain(c cachedPlan) LinkExplanation {
	x := LinkExplanation{Key: l.key, Status: Compiled, Miss: c.link, Reason: c.link.String()}
	for i, u := range c.units {
		if u.ref.Object == "" {
			x.Key = ""
			l.lines[len(l.lines)-len(c.units)+i].Value = unknownObject
		}
	}
	x.Lines = readable(l.lines)
	x.Changes = slices.DeleteFunc(changes(l.recorded(), l.lines), func(c Change) bool { return c.After == unknownObject })
	if c.link.IsHit() {
		x.Status, x.Reason = Hit, "unchanged"
	}
	return x
}

// pendingMiss returns the miss of a link whose objects are not all in the cache.
func (l *link) pendingMiss() Miss {
	if l.trustToolchain {
		return Miss{Cause: CauseObject, Text: "an object differs"}
	}
	return Miss{Cause: CauseObject, Text: "an object is to be compiled"}
}

// replaced compares the files of two toolchains by name. Several files may share a name.
func replaced(before, after []toolchain.File) []Change {
	if len(before) == 0 {
		return nil // the last build did not record them
	}
	old, now := byName(before), byName(after)
	var out []Change
	for _, p := range slices.Concat(after, before) {
		if old[p.Name] != now[p.Name] {
			out = append(out, Change{p.Name, old[p.Name], now[p.Name]})
			old[p.Name] = now[p.Name]
		}
	}
	return out
}

func byName(parts []toolchain.File) map[string]string {
	digests := map[string][]string{}
	for _, p := range parts {
		digests[p.Name] = append(digests[p.Name], p.Digest)
	}
	out := map[string]string{}
	for name, list := range digests {
		slices.Sort(list)
		out[name] = strings.Join(list, " ")
	}
	return out
}
