package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/aiter-go/aiter/internal/cache"
)

// PushReport is the result of [Push].
type PushReport struct {
	Reference string  `json:"reference"` // with the tag
	Digest    string  `json:"digest"`    // of the manifest
	Layers    []Layer `json:"layers"`
	Uploaded  int     `json:"uploaded"` // blobs and manifests that the registry did not have
	Bytes     int64   `json:"bytes"`    // of these
	Key       string  `json:"key"`      // ID of the key that signed it, "" for none
}

// Push packs a prebuilt cache and uploads what the registry does not have. Then it reads all of it back, because a registry
// does not store a blob again that it has, even if the stored one is damaged.
// signer may be nil. A set that the key has signed before is not signed again.
func Push(ctx context.Context, ref Reference, from *cache.Dir, signer *Signer, o Options) (PushReport, error) {
	o = o.resolve()
	rep := PushReport{Reference: ref.String()}
	if ref.Pinned() {
		return rep, &ReferenceError{ref.String(), errors.New("it has a digest, which follows from the pushed content; give a tag")}
	}
	repo, err := openRepository(ref, o, pushTimeouts())
	if err != nil {
		return rep, err
	}
	dir, err := os.MkdirTemp("", "aiter-push-")
	if err != nil {
		return rep, err
	}
	defer os.RemoveAll(dir)
	layers, err := pack(from, dir)
	if err != nil {
		return rep, err
	}
	to, err := repo.storage()
	if err != nil {
		return rep, err
	}
	p := &pushing{repo: repo, to: to, o: o, rep: &rep}
	ctx = scoped(ctx, ref, auth.ActionPull, auth.ActionPush)
	set, err := p.push(ctx, layers)
	if err == nil {
		rep.Digest, rep.Layers = set.digest, set.layers
		err = p.readBack(ctx, set)
	}
	if err == nil && signer != nil {
		err = p.sign(ctx, set, signer)
	}
	return rep, err
}

// storage is a place that accepts pushes.
type storage interface {
	content.Storage
	content.Resolver
	registry.ReferencePusher
}

// pushing is one call of Push.
type pushing struct {
	repo *repository
	to   storage
	o    Options
	mu   sync.Mutex // guards rep
	rep  *PushReport
}

// uploaded counts an upload.
func (p *pushing) uploaded(d ocispec.Descriptor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rep.Uploaded++
	p.rep.Bytes += d.Size
	p.o.Progress(fmt.Sprintf("uploaded %s (%d bytes)", d.Digest, d.Size))
}

// push uploads blobs, then the manifest that names them.
func (p *pushing) push(ctx context.Context, layers []packedLayer) (*manifest, error) {
	raw, config, err := newManifest(layers)
	if err != nil {
		return nil, err
	}
	set, err := parseManifest(raw) // a node must accept it
	if err != nil {
		return nil, err
	}
	group, each := errgroup.WithContext(ctx)
	group.SetLimit(downloads)
	for _, l := range layers {
		group.Go(func() error {
			return p.blob(each, l.descriptor, func() (io.ReadCloser, error) { return os.Open(l.path) })
		})
	}
	group.Go(func() error { return p.bytes(each, ocispec.MediaTypeImageConfig, config) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	desc := describe(ocispec.MediaTypeImageManifest, raw)
	have, err := p.to.Resolve(ctx, p.repo.ref.ref.Reference)
	if err == nil && have.Digest == desc.Digest {
		return set, nil
	}
	if err != nil && !errors.Is(err, errdef.ErrNotFound) {
		return nil, err
	}
	if err := p.to.PushReference(ctx, desc, bytes.NewReader(raw), p.repo.ref.ref.Reference); err != nil {
		return nil, err
	}
	p.uploaded(desc)
	return set, nil
}

func describe(mediaType string, data []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
}

// blob uploads a blob unless the registry has it.
func (p *pushing) blob(ctx context.Context, d ocispec.Descriptor, open func() (io.ReadCloser, error)) error {
	plain := ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
	if has, err := p.to.Exists(ctx, plain); has || err != nil {
		return err
	}
	body, err := open()
	if err != nil {
		return err
	}
	defer body.Close()
	if err := p.to.Push(ctx, plain, body); err != nil {
		return fmt.Errorf("upload of %s: %w", d.Digest, err)
	}
	p.uploaded(plain)
	return nil
}

func (p *pushing) bytes(ctx context.Context, mediaType string, data []byte) error {
	return p.blob(ctx, describe(mediaType, data), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil })
}

// StoredError reports a registry that does not return what was pushed.
type StoredError struct {
	Reference string
	Err       error
}

func (e *StoredError) Error() string {
	return fmt.Sprintf("the registry does not return what was pushed to %s: %v; pushing again does not repair a stored blob: "+
		"delete it in the registry, or push to another repository", e.Reference, e.Err)
}

// Unwrap returns the difference.
func (e *StoredError) Unwrap() error { return e.Err }

// readBack reads the manifest and all blobs of a pushed set, and compares their digests.
func (p *pushing) readBack(ctx context.Context, set *manifest) error {
	raw, err := p.repo.manifestBytes(ctx, p.repo.ref.ref.Reference)
	if err == nil && !bytes.Equal(raw, set.raw) {
		err = damaged("the tag leads to the manifest %s, expected %s", digest.FromBytes(raw), set.digest)
	}
	var m ocispec.Manifest
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	group, each := errgroup.WithContext(ctx)
	group.SetLimit(downloads)
	for _, d := range append(m.Layers, m.Config) {
		d.URLs, d.Data = nil, nil
		group.Go(func() error {
			return p.repo.blob(each, d, func() (io.Writer, error) { return io.Discard, nil })
		})
	}
	if err = errors.Join(err, group.Wait()); err != nil {
		return &StoredError{p.repo.ref.String(), err}
	}
	return nil
}

// sign attaches a signature to a set, unless it has one of the key.
func (p *pushing) sign(ctx context.Context, set *manifest, signer *Signer) error {
	keys := []Key{signer.Key}
	_, err := p.repo.signedBy(ctx, set, keys)
	var none *UntrustedError
	if errors.As(err, &none) {
		if err = p.attach(ctx, set, signer); err == nil {
			_, err = p.repo.signedBy(ctx, set, keys)
		}
	}
	if err == nil {
		p.rep.Key = signer.ID
	}
	return err
}

// attach pushes a bundle as a referrer of the set, as cosign does.
func (p *pushing) attach(ctx context.Context, set *manifest, signer *Signer) error {
	data, err := signer.sign(set.digest)
	if err != nil {
		return err
	}
	of := describe(ocispec.MediaTypeImageManifest, set.raw)
	raw, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: bundleType,
		Config: describe(ocispec.MediaTypeEmptyJSON, []byte("{}")), Layers: []ocispec.Descriptor{describe(bundleType, data)}, Subject: &of,
		Annotations: map[string]string{"dev.sigstore.bundle.content": "dsse-envelope", "dev.sigstore.bundle.predicateType": predicateType},
	})
	if err != nil {
		return err
	}
	if err := errors.Join(p.bytes(ctx, bundleType, data), p.bytes(ctx, ocispec.MediaTypeEmptyJSON, []byte("{}"))); err != nil {
		return err
	}
	desc := describe(ocispec.MediaTypeImageManifest, raw)
	desc.ArtifactType, desc.Annotations = bundleType, map[string]string{annotationSubject: set.digest}
	if err := p.to.Push(ctx, desc, bytes.NewReader(raw)); err != nil {
		return fmt.Errorf("signature of %s: %w", set.digest, err)
	}
	p.uploaded(desc)
	return nil
}
