package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/aiter-go/aiter/internal/cache"
)

var errUnverifiable = errors.New("it has no digest and AITER_JIT_KEYS names no keys, so any kernels of the registry would run; " +
	"pin it (HOST/REPOSITORY@sha256:DIGEST) or set AITER_JIT_KEYS")

// verified is a set whose manifest is pinned or signed.
type verified struct {
	*manifest
	repo *repository
	key  string // ID of the key that signed it, "" if the reference has its digest
}

// resolve reads the manifest of a reference and verifies it.
func resolve(ctx context.Context, ref Reference, o Options) (*verified, error) {
	keys, err := trust(ref, o)
	if err != nil {
		return nil, err
	}
	repo, err := openRepository(ref, o, pullTimeouts())
	if err != nil {
		return nil, err
	}
	raw, err := repo.manifestBytes(ctx, ref.ref.Reference)
	if err != nil {
		return nil, err
	}
	set, err := parseManifest(raw)
	if err != nil {
		return nil, err
	}
	if ref.Pinned() {
		return &verified{manifest: set, repo: repo}, nil // manifestBytes has compared the digest
	}
	key, err := repo.signedBy(ctx, set, keys)
	if err != nil {
		return nil, err
	}
	return &verified{set, repo, key.ID}, nil
}

// trust returns the keys that may sign the set of a reference. A pinned one needs none.
func trust(ref Reference, o Options) ([]Key, error) {
	switch {
	case ref.Pinned():
		return nil, nil
	case o.Keys == "":
		return nil, &ReferenceError{ref.String(), errUnverifiable}
	}
	return LoadKeys(o.Keys)
}

// take downloads layers of one target to a stage and unpacks them to the stage's folder dir. It returns the unpacked cache.
func (v *verified) take(ctx context.Context, layers []Layer, stage *cache.Stage, dir string) (*cache.Dir, error) {
	file := func(i int) string { return stage.File(fmt.Sprintf("%s-%d", dir, i)) }
	if err := v.repo.layers(ctx, layers, file); err != nil {
		return nil, err
	}
	if err := os.Mkdir(stage.File(dir), 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(stage.File(dir))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for i, l := range layers {
		if err := unpackFile(file(i), l.Size, root); err != nil {
			return nil, fmt.Errorf("layer %s: %w", l.Digest, err)
		}
	}
	return check(stage.File(dir), layers)
}

// unpackFile unpacks a file with a layer and removes it.
func unpackFile(path string, size int64, root *os.Root) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unpack(f, size, root), f.Close(), os.Remove(path))
}

// check opens unpacked layers as a cache. It compares the artifacts with those of the manifest, removes the records of
// others, and checks all digests.
func check(dir string, layers []Layer) (*cache.Dir, error) {
	d, err := cache.OpenReadOnly(dir, cache.Options{TrustForeign: true}) // in a stage, below a folder that was checked
	if err != nil {
		return nil, &DamageError{err}
	}
	got, err := d.Artifacts()
	if err != nil {
		return nil, &DamageError{err}
	}
	want := slices.DeleteFunc(slices.Clone(layers), func(l Layer) bool { return l.Module == "" })
	for _, l := range want {
		if !slices.ContainsFunc(got, func(a cache.Artifact) bool {
			return a.ID == l.Artifact && a.Module == l.Module && a.Target == l.Target && a.Part == l.Part
		}) {
			return nil, damaged("layer %s has no intact artifact %s of %s for %s", l.Digest, cache.Key(l.Artifact).Short(), l.Module, l.Target)
		}
	}
	if len(got) != len(want) {
		return nil, damaged("the layers have %d artifacts, expected %d", len(got), len(want))
	}
	if err := d.KeepOnly(got...); err != nil {
		return nil, err
	}
	if err := d.Intact(); err != nil {
		return nil, &DamageError{err}
	}
	return d, nil
}

// fits fails if layers do not fit in a cache with limits.
func (v *verified) fits(layers []Layer, limits cache.Limits) error {
	var size int64
	for _, l := range layers {
		size += l.Size + l.Packed
	}
	if limits.Size > 0 && size > limits.Size {
		return fmt.Errorf("%w: it needs %d bytes, and the limit of the cache is %d (AITER_JIT_MAX_SIZE)", os.ErrPermission, size, limits.Size)
	}
	return nil
}

// PullReport is the result of [Copy] and [Inspect].
type PullReport struct {
	Reference string   `json:"reference"`
	Digest    string   `json:"digest"`  // of the manifest
	Pinned    bool     `json:"pinned"`  // the reference has the digest
	Key       string   `json:"key"`     // ID of the accepted key that signed it, "" for none
	Refused   string   `json:"refused"` // why a node would not use it, "" if it would
	Targets   []string `json:"targets"`
	Layers    []Layer  `json:"layers"`
}

// Copy verifies a set and copies its artifacts for some targets to a cache, which becomes a prebuilt cache. Without targets it copies all.
func Copy(ctx context.Context, ref Reference, to *cache.Dir, targets []string, o Options) (PullReport, error) {
	o = o.resolve()
	ctx = scoped(ctx, ref, auth.ActionPull)
	start := time.Now()
	var set *verified
	err := o.bound(ctx, start, 0, func(ctx context.Context) (err error) {
		set, err = resolve(ctx, ref, o)
		return err
	})
	if err != nil {
		return PullReport{Reference: ref.String()}, err
	}
	rep := PullReport{Reference: ref.String(), Digest: set.digest, Pinned: ref.Pinned(), Key: set.key}
	if targets == nil {
		targets = targetsOf(set.layers)
	}
	for _, t := range targets {
		if layers := set.layersFor("", t); layers != nil {
			rep.Targets, rep.Layers = append(rep.Targets, t), append(rep.Layers, layers...)
		}
	}
	if rep.Targets == nil {
		return rep, fmt.Errorf("%w: the set %s has %v, and none of %v", errAbsent, ref, targetsOf(set.layers), targets)
	}
	return rep, o.bound(ctx, start, packed(rep.Layers), func(ctx context.Context) error {
		for _, t := range rep.Targets {
			if err := copyTarget(ctx, set, set.layersFor("", t), to); err != nil {
				return err
			}
		}
		return nil
	})
}

func copyTarget(ctx context.Context, set *verified, layers []Layer, to *cache.Dir) error {
	stage, err := to.NewStage()
	if err != nil {
		return err
	}
	defer stage.Close()
	from, err := set.take(ctx, layers, stage, "set")
	if err != nil {
		return err
	}
	return to.CopyFrom(from)
}

// Inspect reads the manifest of a set and its signatures. Unlike a node it accepts an untrusted set.
func Inspect(ctx context.Context, ref Reference, o Options) (PullReport, error) {
	o = o.resolve()
	rep := PullReport{Reference: ref.String(), Pinned: ref.Pinned()}
	ctx = scoped(ctx, ref, auth.ActionPull)
	repo, err := openRepository(ref, o, pullTimeouts())
	if err != nil {
		return rep, err
	}
	raw, err := repo.manifestBytes(ctx, ref.ref.Reference)
	if err != nil {
		return rep, err
	}
	set, err := parseManifest(raw)
	if err != nil {
		return rep, err
	}
	rep.Digest, rep.Layers, rep.Targets = set.digest, set.layers, targetsOf(set.layers)
	if o.Keys == "" {
		if !ref.Pinned() {
			rep.Refused = errUnverifiable.Error()
		}
		return rep, nil
	}
	keys, err := LoadKeys(o.Keys)
	if err != nil {
		return rep, err
	}
	key, err := repo.signedBy(ctx, set, keys)
	var refused *UntrustedError
	if errors.As(err, &refused) {
		if !ref.Pinned() {
			rep.Refused = err.Error()
		}
		return rep, nil
	}
	rep.Key = cmp.Or(key.ID, rep.Key)
	return rep, err
}
