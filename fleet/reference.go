package fleet

import (
	"fmt"
	"net"
	"strings"

	"oras.land/oras-go/v2/registry"
)

// Reference names a set: HOST/REPOSITORY:TAG or HOST/REPOSITORY@sha256:DIGEST, as an image for docker, optionally
// after oci://. Hosts are reached by TLS, except loopback ones and those of oci+http://; oci+https:// uses TLS for loopback ones too.
type Reference struct {
	ref   registry.Reference
	plain bool // HTTP without TLS
}

// ReferenceError reports a reference with invalid syntax.
type ReferenceError struct {
	Value string
	Err   error
}

func (e *ReferenceError) Error() string {
	return fmt.Sprintf("reference %q: %v; expected oci://HOST/REPOSITORY:TAG or oci://HOST/REPOSITORY@sha256:DIGEST", e.Value, e.Err)
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
	default:
		return r, &ReferenceError{s, fmt.Errorf("unknown scheme %q", scheme)}
	}
	ref, err := registry.ParseReference(rest)
	if err == nil && ref.Reference == "" {
		err = fmt.Errorf("no tag and no digest")
	}
	if err == nil && strings.Contains(ref.Reference, ":") && !strings.HasPrefix(ref.Reference, "sha256:") {
		err = fmt.Errorf("its digest is no SHA-256")
	}
	if err != nil {
		return r, &ReferenceError{s, err}
	}
	r.ref = ref
	r.plain = scheme == "oci+http" || scheme == "oci" && isLoopback(ref.Host())
	return r, nil
}

// isLoopback reports whether a host, with or without a port, is this machine.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Pinned reports whether the reference contains the digest of a manifest.
func (r Reference) Pinned() bool { return r.ref.ValidateReferenceAsDigest() == nil }

// String returns the reference without the scheme.
func (r Reference) String() string { return r.ref.String() }

// at returns the reference of the same repository with a digest.
func (r Reference) at(digest string) Reference {
	r.ref.Reference = digest
	return r
}
