package watch

import (
	"context"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit"
)

// Build builds with m and watches what the builds were made from. One that
// fails is to be tried again when any file in the folders of its sources and
// headers changes, also while the compiler runs.
func (w *Watcher) Build(ctx context.Context, m *jit.Manager, reqs ...jit.Request) ([]jit.Result, error) {
	before := make([]jit.Inputs, len(reqs))
	for i, r := range reqs {
		before[i] = w.Look(m.FailureInputs(ctx, r))
	}
	results, err := m.Build(ctx, reqs...)
	for i, r := range results {
		in, lost := m.Inputs(ctx, r)
		if r.Err != nil || lost != nil {
			in = before[i]
		}
		w.Set(r.Request, in)
	}
	return results, err
}

// Look returns the inputs with the contents that the files have now.
func (w *Watcher) Look(in jit.Inputs) jit.Inputs {
	g := &group{known: in.Files, globs: in.Globs, folders: in.Folders}
	in.Files = newLook(w.opts.Memo).at(g)
	return in
}

// Reconfigure reads the configuration again and returns a manager that builds
// from it, and watches its files. A configuration that cannot be used is to be
// read again when any file of the source tree changes: one that it names may
// come to be.
func (w *Watcher) Reconfigure(m *jit.Manager, load func() (*opconfig.Config, error)) (*jit.Manager, error) {
	config, err := load()
	if err != nil {
		in := m.ConfigInputs()
		if root, onDisk := m.Root(); onDisk {
			in.Folders = []string{root}
		}
		in = w.Look(in)
		if config, err = load(); err != nil { // what it is like is known from before this
			w.Set(jit.Request{}, in)
			return nil, err
		}
	}
	m = m.With(config)
	w.Set(jit.Request{}, m.ConfigInputs())
	return m, nil
}
