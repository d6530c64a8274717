package fleet

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/registry"

	"github.com/aiter-go/aiter/internal/servers"
)

// Reference names a set: HOST/REPOSITORY:TAG or HOST/REPOSITORY@sha256:DIGEST, as an image for docker, optionally
// after oci://. Connections use TLS, except those to loopback hosts and those of oci+http://. With oci+https:// all use TLS.
// https://HOST/FOLDER, http:// and file:///FOLDER name a set in a folder, optionally with @sha256:DIGEST.
type Reference struct {
	ref    registry.Reference // that of a folder has no repository
	plain  bool               // HTTP without TLS
	folder string             // URL, "" for a set in a registry
	dir    string             // path of a folder in the file system, "" for others
}

// ReferenceError reports a reference with invalid syntax.
type ReferenceError struct {
	Value string
	Err   error
}

func (e *ReferenceError) Error() string {
	return fmt.Sprintf("reference %q: %v; expected oci://HOST/REPOSITORY:TAG, oci://HOST/REPOSITORY@sha256:DIGEST or https://HOST/FOLDER",
		e.Value, e.Err)
}

// Unwrap returns the reason.
func (e *ReferenceError) Unwrap() error { return e.Err }

// ParseReference parses a reference. The error is a [*ReferenceError].
func ParseReference(s string) (Reference, error) {
	scheme, rest, given := strings.Cut(s, "://")
	if !given {
		scheme, rest = "oci", s
	}
	r := Reference{}
	switch scheme {
	case "oci", "oci+http", "oci+https":
	case "https", "http", "file":
		return parseFolder(s)
	default:
		return r, &ReferenceError{s, fmt.Errorf("unknown scheme %q", scheme)}
	}
	ref, err := registry.ParseReference(rest)
	if err == nil && ref.Reference == "" {
		err = errors.New("it has no tag and no digest")
	}
	if err == nil && strings.Contains(ref.Reference, ":") && !strings.HasPrefix(ref.Reference, "sha256:") {
		err = errors.New("its digest is not a SHA-256")
	}
	if err != nil {
		return r, &ReferenceError{s, err}
	}
	r.ref = ref
	r.plain = scheme == "oci+http" || scheme == "oci" && servers.IsLoopback(ref.Host())
	return r, nil
}

// parseFolder parses a reference to a folder.
func parseFolder(s string) (Reference, error) {
	at, sum, pinned := strings.Cut(s, "@sha256:")
	r := Reference{folder: strings.TrimRight(at, "/")}
	u, err := url.Parse(r.folder)
	switch {
	case err != nil:
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		err = errors.New("it has a user, a query or a fragment, which logs would show; credentials are those of docker login")
	case (u.Host == "") != (u.Scheme == "file") || u.Host+u.Path == "":
		err = errors.New("expected a host, or file:// and an absolute folder")
	case pinned && digest.NewDigestFromEncoded(digest.SHA256, sum).Validate() != nil, strings.Contains(u.Path, "@"):
		err = errors.New("its digest is not a SHA-256")
	}
	if err != nil {
		return r, &ReferenceError{s, err}
	}
	r.ref = registry.Reference{Registry: u.Host, Reference: folderTag}
	if u.Scheme == "file" {
		r.dir = u.Path
	}
	if pinned {
		r.ref.Reference = "sha256:" + sum
	}
	return r, nil
}

// Pinned reports whether the reference contains the digest of a manifest.
func (r Reference) Pinned() bool { return r.ref.ValidateReferenceAsDigest() == nil }

// String returns the reference, that of a registry without the scheme.
func (r Reference) String() string {
	switch {
	case r.folder == "":
		return r.ref.String()
	case r.Pinned():
		return r.folder + "@" + r.ref.Reference
	}
	return r.folder
}

// at returns the reference of the same repository with a digest.
func (r Reference) at(digest string) Reference {
	r.ref.Reference = digest
	return r
}
