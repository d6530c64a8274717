package watch

import (
	"context"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit"
)

// Build builds with m and watches the inputs of the builds. After a failed build it watches all
// files in the folders of the module's sources and headers, and reports changes since the start
// of the build. The results and the error are those of [jit.Manager.Build].
func (w *Watcher) Build(ctx context.Context, m *jit.Manager, reqs ...jit.Request) ([]jit.Result, error) {
	before := make([]jit.Inputs, len(reqs))
	for i, r := range reqs {
		before[i] = w.Current(m.FailureInputs(ctx, r))
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

// Current returns the inputs with the present contents of the files.
func (w *Watcher) Current(in jit.Inputs) jit.Inputs {
	g := &group{known: in.Files, globs: in.Globs, folders: in.Folders}
	in.Files = newScan(w.opts.Memo).group(g)
	return in
}

// Reconfigure reads the configuration again, watches its files, and returns a manager that
// builds from it. If the configuration is invalid it returns the error of load. It then watches
// all files of the source tree, because a file that the configuration names may appear.
func (w *Watcher) Reconfigure(m *jit.Manager, load func() (*opconfig.Config, error)) (*jit.Manager, error) {
	config, err := load()
	if err != nil {
		in := m.ConfigInputs()
		in.Folders = m.Roots()
		in = w.Current(in)
		if config, err = load(); err != nil { // after Current, so that Next reports each later change
			w.Set(jit.Request{}, in)
			return nil, err
		}
	}
	next, err := m.With(config)
	if err != nil {
		return nil, err
	}
	w.Set(jit.Request{}, next.ConfigInputs())
	return next, nil
}
