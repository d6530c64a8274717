// Package fleet distributes prebuilt kernels through registries for container images. CI pushes what aiterctl build --output makes as
// a signed set ([Push]); nodes pull the artifacts of their targets before they would compile ([Open]):
//
//	reg, err := registry.Open(ctx, registry.Options{Remote: fleet.Open}) // AITER_JIT_REMOTE, AITER_JIT_KEYS
//
// A set is an OCI image, in a registry or in a folder on a web server. It has a layer with the records of each target, and a layer for
// each artifact; annotations name their module and target. A set is used if its reference contains the digest of its manifest, or if a
// key of AITER_JIT_KEYS has signed that digest; signatures are those of cosign. No layer is unpacked before this check. Each pulled
// cache is a read-only cache below the user's cache, and the lookup of package jit decides whether its artifacts are used.
//
// Only this package imports an OCI library, so that programs without it do not contain one.
package fleet

import (
	"context"
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
	Keys string        // AITER_JIT_KEYS: a file or a folder of PEM with the public keys that verify the signatures of sets; "": none
	Wait time.Duration // AITER_JIT_REMOTE_WAIT: of a pull for one module and target; 0: DefaultWait
	// Timeout bounds a whole Copy or Warm; 0: Wait, and the time for the layers at 256 KiB/s.
	Timeout time.Duration
	Certs   string // AITER_JIT_REMOTE_CERTS: a folder with the layout of DefaultCerts; "": DefaultCerts
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

// minRate is the rate in bytes per second that the default of Timeout assumes. A registry with 2 Gb/s serves a thousand nodes at this rate.
const minRate = 256 << 10

// TimeoutError reports a pull that was not complete within its limit.
type TimeoutError struct {
	Limit time.Duration
	Err   error // of the request that did not end in time
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("the pull is not complete after %s: %v", e.Limit, e.Err)
}

// Unwrap returns the error of the request that did not end in time.
func (e *TimeoutError) Unwrap() error { return e.Err }

// bound calls do with a context that ends when the time of a pull is over. The pull began at start; bytes is the size of its layers. If
// the time is over, the error is a *TimeoutError.
func (o Options) bound(ctx context.Context, start time.Time, bytes int64, do func(context.Context) error) error {
	limit := o.Timeout
	if limit <= 0 {
		limit = o.Wait + time.Duration(bytes/minRate)*time.Second
	}
	limited, cancel := context.WithDeadline(ctx, start.Add(limit))
	defer cancel()
	err := do(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = &TimeoutError{limit, err}
	}
	return err
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
