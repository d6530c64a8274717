package jit

import (
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// LinkExplanation explains the link; see [Explanation].
type LinkExplanation struct {
	Key     cache.Key   `json:"key"`    // "" until all objects are known
	Status  Status      `json:"status"` // the status that a build would have now
	Reason  string      `json:"reason"`
	Miss    Miss        `json:"miss,omitzero"` // zero for a hit
	Lines   cache.Lines `json:"lines"`
	Changes []Change    `json:"changes"`
}

// unknownObject replaces the digest of an object that is not compiled yet.
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

// replacedFiles compares the files of two toolchains by name. Several files may share a name.
func replacedFiles(before, after []toolchain.File) []Change {
	if len(before) == 0 {
		return nil // the last build did not record them
	}
	old, now := byName(before), byName(after)
	var out []Change
	for _, f := range slices.Concat(after, before) {
		if old[f.Name] != now[f.Name] {
			out = append(out, Change{f.Name, old[f.Name], now[f.Name]})
			old[f.Name] = now[f.Name]
		}
	}
	return out
}

// byName returns the digests of the files of each name, joined by blanks.
func byName(files []toolchain.File) map[string]string {
	digests := map[string][]string{}
	for _, f := range files {
		digests[f.Name] = append(digests[f.Name], f.Digest)
	}
	out := map[string]string{}
	for name, list := range digests {
		slices.Sort(list)
		out[name] = strings.Join(list, " ")
	}
	return out
}
