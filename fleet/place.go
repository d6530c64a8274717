package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
)

// ociRegistry is a repository of a registry.
type ociRegistry struct {
	*remote.Repository
	base string // URL
}

// manifest makes one request. The library's own call makes a second one for answers without a length.
func (r ociRegistry) manifest(ctx context.Context, reference string) (body io.ReadCloser, declared string, err error) {
	body, header, err := get(ctx, r.Client, r.base+"/manifests/"+reference)
	return body, header.Get("Docker-Content-Digest"), err
}

func (r ociRegistry) fetch(ctx context.Context, d digest.Digest) (io.ReadCloser, error) {
	body, _, err := get(ctx, r.Client, r.base+"/blobs/"+d.String())
	return body, err
}

func (r ociRegistry) referrers(ctx context.Context, of ocispec.Descriptor) (list []ocispec.Descriptor, err error) {
	err = r.Referrers(ctx, of, "", func(more []ocispec.Descriptor) error {
		list = append(list, more...)
		return nil
	})
	return list, err
}

func (r ociRegistry) storage() (storage, error) { return r.Repository, nil }

// folderTag is the tag of the set that a folder's URL names. The folder may have older sets, which references with a digest name.
const folderTag = "latest"

// folder is an OCI image layout on a web server or in the file system: index.json, and blobs by digest.
type folder struct {
	client remote.Client
	ref    Reference
}

// open opens a file of the folder.
func (f folder) open(ctx context.Context, name ...string) (io.ReadCloser, error) {
	if f.ref.dir != "" {
		return os.Open(path.Join(f.ref.dir, path.Join(name...)))
	}
	body, _, err := get(ctx, f.client, f.ref.folder+"/"+path.Join(name...))
	return body, err
}

// index reads the list of sets and signatures.
func (f folder) index(ctx context.Context) ([]ocispec.Descriptor, error) {
	body, err := f.open(ctx, ocispec.ImageIndexFile)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxManifest))
	if err != nil {
		return nil, err
	}
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, damaged("%s/%s is not JSON of at most %d bytes: %w", f.ref.folder, ocispec.ImageIndexFile, maxManifest, err)
	}
	return index.Manifests, nil
}

func (f folder) manifest(ctx context.Context, reference string) (body io.ReadCloser, declared string, err error) {
	if reference == folderTag {
		list, err := f.index(ctx)
		if err != nil {
			return nil, "", err
		}
		i := slices.IndexFunc(list, func(d ocispec.Descriptor) bool { return d.Annotations[ocispec.AnnotationRefName] == folderTag })
		if i < 0 {
			return nil, "", damaged("%s/%s has no manifest with the name %q", f.ref.folder, ocispec.ImageIndexFile, folderTag)
		}
		reference = list[i].Digest.String()
	}
	body, err = f.fetch(ctx, digest.Digest(reference))
	return body, reference, err
}

func (f folder) fetch(ctx context.Context, d digest.Digest) (io.ReadCloser, error) {
	if err := d.Validate(); err != nil { // it becomes a path
		return nil, damaged("digest %q: %w", d, err)
	}
	return f.open(ctx, ocispec.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

// referrers returns the signatures that declare a manifest, and those that declare none, as other programs write them.
func (f folder) referrers(ctx context.Context, of ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	list, err := f.index(ctx)
	return slices.DeleteFunc(list, func(d ocispec.Descriptor) bool {
		subject := d.Annotations[annotationSubject]
		return d.ArtifactType != bundleType || subject != "" && subject != of.Digest.String()
	}), err
}

// storage implements [place]. Only a folder in the file system is written.
func (f folder) storage() (storage, error) {
	if f.ref.dir == "" {
		return nil, &ReferenceError{f.ref.folder, errors.New("push to file:///DIR and upload that folder, index.json last")}
	}
	to, err := oci.New(f.ref.dir)
	return layout{to}, err
}

// layout writes an OCI image layout.
type layout struct{ *oci.Store }

// PushReference implements [storage].
func (l layout) PushReference(ctx context.Context, d ocispec.Descriptor, body io.Reader, reference string) error {
	if err := l.Push(ctx, d, body); err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
		return err
	}
	return l.Tag(ctx, d, reference)
}
