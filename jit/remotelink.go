package jit

import (
	"context"
	"os"
	"path"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// linkOnFarm links on the executor. It fails if there is none, if the executor gives no usable library, and for a link whose flags name
// files, because the key does not cover those.
func (l *link) linkOnFarm(ctx context.Context) (a cache.Artifact, err error) {
	if l.m.remote == nil || l.namesFiles() {
		return a, errNoFarm
	}
	err = l.remotely(ctx, l.event(Event{}), false, func(_, fresh bool) (err error) {
		a, err = l.linkRemotely(ctx, fresh)
		return err
	})
	return a, err
}

// linkRemotely is linkOnce on the executor. It fails with [*ExecutorError] if the link fails there.
func (l *link) linkRemotely(ctx context.Context, fresh bool) (a cache.Artifact, err error) {
	stage, err := l.m.opts.Cache.NewStage()
	if err != nil {
		return a, err
	}
	defer stage.Close()
	objects, err := l.gather(stage)
	if err != nil {
		return a, err
	}
	tools, err := l.m.remote.toolsOf(l.tc, toolchain.Whole)
	if err != nil {
		return a, err
	}
	c := RemoteCommand{
		Script:  linkScript(l.tc, tools, l.argv(workMark, objects, l.output())),
		Environ: workerEnviron(l.tc), Inputs: map[string][]byte{}, Outputs: []string{l.output()},
		Toolchain: l.tc.Digest, Timeout: l.timeout, Fresh: fresh, Dir: stage.Path,
	}
	for _, name := range objects {
		if c.Inputs[path.Join("objects", name)], err = os.ReadFile(stage.File(name)); err != nil {
			return a, err
		}
	}
	start := time.Now()
	run, err := l.m.remote.executor.Execute(ctx, c)
	if err != nil {
		return a, err
	}
	if fault := l.outputFault(stage, objects, outcome{}); fault != "" {
		return a, unusable(ExecutorDamaged, run, "link of %s: %s", l.mod.Name, fault)
	}
	return l.publish(stage, since(start))
}
