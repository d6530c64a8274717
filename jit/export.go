package jit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/tuning"
)

// Export copies the artifacts of the results and the records that lead to them into another
// cache. It copies no objects, because nothing is linked from a prebuilt cache. It replaces
// earlier artifacts of the same modules and targets.
func (m *Manager) Export(to *cache.Dir, results []Result) error {
	var errs []error
	for _, r := range results {
		if r.Err != nil {
			continue
		}
		if err := m.exportOne(to, r); err != nil {
			errs = append(errs, fmt.Errorf("copy of %s: %w", r.Request, err))
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) exportOne(to *cache.Dir, r Result) error {
	stage, err := to.NewStage()
	if err != nil {
		return err
	}
	defer stage.Close()
	library := stage.File("library")
	if err := copyFile(r.Artifact.Path, library); err != nil { // a copy, because its mode will differ
		if isFull(err) {
			err = &cache.AccessError{Path: to.Path(), Op: "write to", Err: err}
		}
		return err
	}
	a := r.Artifact
	a.LinkKey, a.BuildRecordKey, a.Units = r.record.RecentBuild.Link, r.recordKey(), r.record.Refs
	a.Exported = true
	a, err = to.AddArtifact(stage, library, a)
	if err != nil {
		return err
	}
	if a.Digest != r.Artifact.Digest {
		return &cache.MissError{Kind: "artifact", Key: r.Artifact.ID, Reason: "it changed while it was copied"}
	}
	if err := m.exportRecords(to, r); err != nil {
		return err
	}
	_, err = to.Clean(cache.CleanRequest{Match: func(old cache.Artifact) bool {
		return old.Module == a.Module && old.Target == a.Target && old.Part == a.Part && old.ID != a.ID
	}})
	return err
}

// recordKey returns the key of the artifact's build record. A request for a part may have
// the artifact of the whole module.
func (r Result) recordKey() cache.Key {
	made := r.Request
	if r.Artifact.Part == "" {
		made.Part = opconfig.Part{}
	}
	return buildRecordKey(made)
}

// exportRecords copies the records by which a lookup finds the artifact of a result.
func (m *Manager) exportRecords(to *cache.Dir, r Result) error {
	from, errs := m.opts.Cache, []error{}
	put := func(kind cache.Kind, key cache.Key, data []byte, err error) {
		if err == nil {
			err = to.Put(kind, key, data)
		}
		errs = append(errs, err)
	}
	copyRecord := func(kind cache.Kind, key cache.Key) {
		data, err := from.Get(kind, key)
		put(kind, key, data, err)
	}
	for _, ref := range r.record.Refs {
		for _, deps := range ref.Deps {
			copyRecord(cache.DepList, cache.Key(deps))
		}
		copyRecord(cache.Object, ref.Result)
		data, err := json.Marshal([]deps.Set{{Tree: ref.Deps[0], System: ref.Deps[1]}})
		put(cache.Manifest, ref.Unit, data, err)
	}
	copyRecord(cache.Compiler, r.record.Compiler)
	if entries := tuning.Load(from, r.Artifact.Digest); len(entries) > 0 {
		errs = append(errs, tuning.Store(context.Background(), to, r.Artifact.Digest, entries...))
	}
	put(cache.Linked, r.record.RecentBuild.Link, []byte(r.Artifact.ID), nil)
	data, err := json.Marshal(r.record)
	put(cache.BuildRecord, r.recordKey(), data, err)
	return errors.Join(errs...)
}
