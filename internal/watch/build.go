package watch

import (
	"context"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit"
)

// Build builds with m and watches the inputs of the builds. A build that fails watches all
// files in the folders of its sources and headers, and counts changes from before the build on.
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

// Reconfigure reads the configuration again, watches its files, and returns a manager that
// builds from it. For an invalid configuration it watches all files of the source tree, because
// one that the configuration names may appear.
func (w *Watcher) Reconfigure(m *jit.Manager, load func() (*opconfig.Config, error)) (*jit.Manager, error) {
	config, err := load()
	if err != nil {
		in := m.ConfigInputs()
		if root, onDisk := m.Root(); onDisk {
			in.Folders = []string{root}
		}
		in = w.Look(in)
		if config, err = load(); err != nil { // w.Look came first, so that no later change is lost
			w.Set(jit.Request{}, in)
			return nil, err
		}
	}
	m = m.With(config)
	w.Set(jit.Request{}, m.ConfigInputs())
	return m, nil
}
