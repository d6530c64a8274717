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
	Lines   cache.Lines `json:"lines"`
	Changes []Change    `json:"changes"`
}

// unknownObject stands for an object that is still to be compiled.
const unknownObject = "(to be compiled)"

func (l *link) explain(units []UnitResult, last buildRecord) LinkExplanation {
	l.identify(units)
	x := LinkExplanation{Key: l.key, Status: Compiled}
	for i, u := range units {
		if u.ref.Object == "" {
			x.Key = ""
			l.lines[len(l.lines)-len(units)+i].Value = unknownObject
		}
	}
	x.Lines = readable(l.lines)
	x.Changes = slices.DeleteFunc(changes(last.Link, l.lines), func(c Change) bool { return c.After == unknownObject })
	x.Reason = l.why(x, last)
	if x.Key == "" {
		return x
	}
	switch _, ok, why := l.find(); {
	case ok:
		x.Status, x.Reason = Hit, "unchanged"
	case why != "":
		x.Reason = why
	}
	return x
}

// why is the reason of a link that is to be done.
func (l *link) why(x LinkExplanation, last buildRecord) string {
	switch {
	case x.Key == "":
		if l.trustToolchain {
			return "an object would be another"
		}
		return "an object is to be compiled"
	case last.Link == nil:
		return "never linked for " + l.target.String()
	case len(x.Changes) > 0:
		return describe(x.Changes[0].Label) + " changed"
	}
	return "not in the cache"
}

// replaced compares the files of two toolchains by their names. Several may
// have one name.
func replaced(before, after []toolchain.File) []Change {
	if len(before) == 0 {
		return nil // nobody knows
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
