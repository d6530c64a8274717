package fleet

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/registry/remote"
)

const (
	downloads     = 4  // at a time
	maxSignatures = 32 // of a set; further ones are not read
)

// repository reads the sets of a place. It checks the digests of all that it reads.
type repository struct {
	place
	ref Reference
}

// place is where sets are: a repository of a registry, or a folder. Each method makes one attempt.
type place interface {
	// manifest returns the manifest that a tag or a digest names. declared is the digest that the place gives, "" if it gives none.
	manifest(ctx context.Context, reference string) (body io.ReadCloser, declared string, err error)
	fetch(ctx context.Context, d digest.Digest) (io.ReadCloser, error)
	// referrers returns manifests that may be signatures of another one.
	referrers(ctx context.Context, of ocispec.Descriptor) ([]ocispec.Descriptor, error)
	storage() (storage, error)
}

func openRepository(ref Reference, o Options, limits timeouts) (*repository, error) {
	client, err := newClient(ref, o, limits)
	if err != nil {
		return nil, err
	}
	scheme := "https"
	switch {
	case ref.folder != "":
		return &repository{folder{client, ref}, ref}, nil
	case ref.plain:
		scheme = "http"
	}
	return &repository{ociRegistry{&remote.Repository{
		Client: client, Reference: ref.ref, PlainHTTP: ref.plain,
		MaxMetadataBytes: maxManifest, ReferrerListMaxPages: maxPages, SkipReferrersGC: true,
	}, scheme + "://" + ref.ref.Host() + "/v2/" + ref.ref.Repository}, ref}, nil
}

// attempt calls do again if an answer was cut short. The client has already repeated requests without an answer.
func attempt(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		var tried *triedError
		if err == nil || try == tries || !isBroken(err) || errors.As(err, &tried) || ctx.Err() != nil {
			return err
		}
		if err := sleep(ctx, rand.N(firstPause<<(try-1))); err != nil {
			return err
		}
	}
}

// manifestBytes returns the manifest that a tag or a digest names.
func (r *repository) manifestBytes(ctx context.Context, reference string) (data []byte, err error) {
	err = attempt(ctx, func() error {
		body, declared, err := r.manifest(ctx, reference)
		if err != nil {
			return err
		}
		defer body.Close()
		data, err = io.ReadAll(io.LimitReader(body, maxManifest+1))
		want := cmp.Or(declared, digest.FromBytes(data).String())
		if strings.HasPrefix(reference, "sha256:") {
			want = reference
		}
		switch got := digest.FromBytes(data).String(); {
		case err != nil:
			return err
		case len(data) > maxManifest:
			return damaged("the manifest %s has more than %d bytes", reference, maxManifest)
		case got != want:
			return damaged("the manifest %s has the digest %s, expected %s", reference, got, want)
		}
		return nil
	})
	return data, err
}

// blob downloads a blob. begin returns the empty writer for each attempt.
func (r *repository) blob(ctx context.Context, desc ocispec.Descriptor, begin func() (io.Writer, error)) error {
	return attempt(ctx, func() error {
		w, err := begin()
		if err != nil {
			return err
		}
		body, err := r.fetch(ctx, desc.Digest)
		if err != nil {
			return err
		}
		defer body.Close()
		return copyBlob(w, body, desc)
	})
}

// copyBlob copies a body whose size and digest a descriptor gives.
func copyBlob(w io.Writer, body io.Reader, desc ocispec.Descriptor) error {
	var sum hash.Hash = sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(body, desc.Size+1))
	switch got := hex.EncodeToString(sum.Sum(nil)); {
	case err != nil:
		return fmt.Errorf("blob %s: %w", desc.Digest, err)
	case n < desc.Size:
		return &shortError{desc.Digest.String(), n, desc.Size}
	case n > desc.Size:
		return damaged("blob %s has more than %d bytes", desc.Digest, desc.Size)
	case got != desc.Digest.Encoded():
		return damaged("blob %s has the digest sha256:%s", desc.Digest, got)
	}
	return nil
}

// smallBlob returns a blob of at most most bytes.
func (r *repository) smallBlob(ctx context.Context, desc ocispec.Descriptor, most int64) ([]byte, error) {
	if desc.Size < 0 || desc.Size > most || desc.Digest.Validate() != nil || desc.Digest.Algorithm() != digest.SHA256 {
		return nil, damaged("blob %s of %d bytes: expected a SHA-256 and at most %d bytes", desc.Digest, desc.Size, most)
	}
	var b bytes.Buffer
	err := r.blob(ctx, desc, func() (io.Writer, error) {
		b.Reset()
		return &b, nil
	})
	return b.Bytes(), err
}

// layers downloads layers to files. The order is random, so that nodes that start together load different layers first: nodes that pull
// from each other can take only what another one already has. path returns the path of a layer's file.
func (r *repository) layers(ctx context.Context, list []Layer, path func(i int) string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(downloads)
	for _, i := range rand.Perm(len(list)) {
		l := list[i]
		group.Go(func() error {
			f, err := os.OpenFile(path(i), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			err = r.blob(ctx, l.descriptor, func() (io.Writer, error) {
				_, err := f.Seek(0, io.SeekStart)
				return f, errors.Join(err, f.Truncate(0))
			})
			return errors.Join(err, f.Close())
		})
	}
	return group.Wait()
}

// UntrustedError reports a set without a valid signature of an accepted key.
type UntrustedError struct {
	Reference string
	Digest    string   // of the manifest
	Reasons   []string // of the refused signatures
}

func (e *UntrustedError) Error() string {
	found := "it has no signature"
	if len(e.Reasons) > 0 {
		found = "its signatures are refused: " + strings.Join(e.Reasons, "; ")
	}
	return fmt.Sprintf("no key of AITER_JIT_KEYS has signed the manifest %s (%s); sign it with aiterctl push --sign or cosign sign --key, "+
		"or add the key that signed it to AITER_JIT_KEYS", e.Digest, found)
}

// signedBy returns the key that has signed a manifest. It fails with [*UntrustedError].
func (r *repository) signedBy(ctx context.Context, m *manifest, keys []Key) (Key, error) {
	refused := &UntrustedError{Reference: r.ref.String(), Digest: m.digest}
	var list []ocispec.Descriptor
	of := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.Digest(m.digest), Size: int64(len(m.raw))}
	err := attempt(ctx, func() (err error) {
		list, err = r.referrers(ctx, of)
		return err
	})
	if err != nil && !isNotFound(err) {
		return Key{}, fmt.Errorf("the signatures of %s: %w", m.digest, err)
	}
	list = slices.DeleteFunc(list, func(d ocispec.Descriptor) bool { return d.ArtifactType != "" && d.ArtifactType != bundleType })
	for _, d := range list[:min(len(list), maxSignatures)] {
		key, reason, err := r.signature(ctx, m, d, keys)
		switch {
		case err != nil:
			return Key{}, err
		case reason == nil:
			return key, nil
		}
		refused.Reasons = append(refused.Reasons, reason.Error())
	}
	return Key{}, refused
}

// signature checks one referrer of a manifest. reason is nil for a valid signature; err is a failure of the server.
func (r *repository) signature(ctx context.Context, m *manifest, d ocispec.Descriptor, keys []Key) (key Key, reason, err error) {
	raw, err := r.manifestBytes(ctx, d.Digest.String())
	var data []byte
	if err == nil {
		var layer ocispec.Descriptor
		if layer, reason = bundleLayer(raw, m.digest); reason != nil {
			return key, reason, nil
		}
		data, err = r.smallBlob(ctx, layer, maxBundle)
	}
	var broken *DamageError
	if isNotFound(err) || errors.As(err, &broken) { // other signatures may be valid
		return key, err, nil
	}
	if err != nil {
		return key, nil, err
	}
	key, reason = verifyBundle(data, m.digest, keys)
	return key, reason, nil
}

// bundleLayer returns the descriptor of the bundle in the manifest of a signature.
func bundleLayer(raw []byte, of string) (ocispec.Descriptor, error) {
	var m ocispec.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("its manifest: %w", err)
	}
	if m.Subject == nil || m.Subject.Digest.String() != of {
		return ocispec.Descriptor{}, errSubject
	}
	i := slices.IndexFunc(m.Layers, func(l ocispec.Descriptor) bool { return l.MediaType == bundleType })
	if i < 0 {
		return ocispec.Descriptor{}, errBundle
	}
	m.Layers[i].URLs, m.Layers[i].Data = nil, nil
	return m.Layers[i], nil
}
