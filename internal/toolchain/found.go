package toolchain

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
)

// collect fills r with the files in the answers and in the traces of the replies; common reports whether the driver and the
// link belong to them.
func (s *search) collect(r *record, common bool, answers []answer, replies []reply) error {
	c := s.collector()
	c.include = s.tc.IncludeDirs
	if common {
		c.include = r.IncludeDirs
	}
	err := c.walk(r, common, answers)
	for _, reply := range replies {
		err = cmp.Or(err, c.traced(reply))
	}
	if err == nil && common && c.scriptTools {
		var tried reply
		if tried, err = s.trial(); err == nil {
			err = c.traced(tried)
		}
	}
	if err = cmp.Or(err, c.digests.Wait()); err != nil {
		return err
	}
	r.Commands = s.commands(r.IncludeDirs, answers)
	r.Parts, r.Outside = mergeParts(values(c.parts)), mergeParts(values(c.outside))
	r.Watch, r.Facts = c.stamps(), c.remaining()
	r.Unknown, r.scripted, r.young = c.unknown, c.scripted || c.scriptTools, c.young
	return nil
}

// remaining returns the facts that do not follow from others: if a part can be read, its folders exist.
func (c *collector) remaining() []fact {
	implied := map[fact]bool{}
	imply := func(host string) {
		for f := newFact(factPresent, host); !implied[f]; f = newFact(factPresent, host) {
			implied[f] = true
			host = filepath.Dir(host)
		}
	}
	for _, p := range c.parts {
		imply(c.inside(p.Path))
	}
	for _, p := range c.outside {
		imply(p.Path)
	}
	for dir := range c.watched {
		imply(dir)
	}
	maps.DeleteFunc(c.facts, func(f fact, _ bool) bool { return implied[f] })
	return slices.Sorted(maps.Keys(c.facts))
}

func values(parts []*File) []File {
	out := make([]File, len(parts))
	for i, p := range parts {
		out[i] = *p
	}
	return out
}
