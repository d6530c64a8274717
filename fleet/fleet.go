// Package fleet distributes prebuilt kernels through registries for container images. CI pushes what aiterctl build --output makes as
// a signed set ([Push]); nodes pull the artifacts of their targets before they would compile ([Open]):
//
//	reg, err := registry.Open(ctx, registry.Options{Remote: fleet.Open}) // AITER_JIT_REMOTE, AITER_JIT_KEYS
//
// A set is an OCI image, in a registry or in a folder on a web server. It has a layer with the records of each target, and a layer for
// each artifact; annotations name their module and target. A set is used if its reference contains the digest of its manifest, or if a
// key of AITER_JIT_KEYS has signed that digest; signatures are those of cosign. Nothing is unpacked before. Each pulled cache is a
// read-only cache below the user's cache, and the lookup of package jit decides whether its artifacts are used.
//
// Only this package imports an OCI library, so that programs without it do not contain one.
package fleet

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/aiter-go/aiter/internal/settings"
)

// DefaultWait bounds the time that a pull may delay a build.
const DefaultWait = 20 * time.Second

// DefaultCerts is the folder with the certificates of registries, as docker's: HOST:PORT/ca.crt, client.cert and client.key.
const DefaultCerts = "/etc/docker/certs.d"

// Options are the settings of pulls and pushes. Use [FromEnvironment] for those of the environment.
type Options struct {
	Keys  string        // AITER_JIT_KEYS: a file or a folder of PEM with the public keys that may sign sets; "": none
	Wait  time.Duration // AITER_JIT_REMOTE_WAIT: of a pull for one module and target; 0: DefaultWait
	Certs string        // AITER_JIT_REMOTE_CERTS: a folder as DefaultCerts; "": that
	// Progress, if not nil, receives a line for each blob.
	Progress func(string)
}

// FromEnvironment returns the options that the environment sets. The error is an *EnvironmentError of package registry.
func FromEnvironment(getenv func(string) string) (Options, error) {
	o := Options{Keys: getenv("AITER_JIT_KEYS"), Wait: DefaultWait, Certs: getenv("AITER_JIT_REMOTE_CERTS")}
	if v := getenv("AITER_JIT_REMOTE_WAIT"); v != "" {
		wait, err := time.ParseDuration(strings.TrimSpace(v))
		if err == nil && wait <= 0 {
			err = errors.New("it is not above 0")
		}
		if err != nil {
			err = fmt.Errorf("expected a time above 0, such as 20s: %w", err)
			return o, &settings.EnvironmentError{Name: "AITER_JIT_REMOTE_WAIT", Value: v, Err: err}
		}
		o.Wait = wait
	}
	return o, nil
}

// resolve fills unset fields.
func (o Options) resolve() Options {
	if o.Wait <= 0 {
		o.Wait = DefaultWait
	}
	if o.Certs == "" {
		o.Certs = DefaultCerts
	}
	o.Certs = filepath.Clean(o.Certs)
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o
}
