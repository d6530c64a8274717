package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/aiter-go/aiter/fleet"
	"github.com/aiter-go/aiter/registry"
)

// A reference is pinned by the digest of a manifest. Other sets need a signature.
func ExampleParseReference() {
	for _, s := range []string{
		"oci://registry.example/aiter/kernels:v1",
		"registry.example/aiter/kernels@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
	} {
		ref, err := fleet.ParseReference(s)
		if err != nil {
			panic(err)
		}
		fmt.Println(ref, ref.Pinned())
	}
	// Output:
	// registry.example/aiter/kernels:v1 false
	// registry.example/aiter/kernels@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef true
}

// The environment names the set and the keys. Calls whose code no cache has pull it.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "aiter-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	env := map[string]string{"AITER_JIT_REMOTE": "oci://registry.example/aiter/kernels:v1"} // and no AITER_JIT_KEYS
	_, err = registry.Open(context.Background(), registry.Options{
		Remote: fleet.Open, CacheDir: dir, Getenv: func(name string) string { return env[name] },
	})
	var wrong *registry.EnvironmentError
	fmt.Println(errors.As(err, &wrong), wrong.Name)
	// Output: true AITER_JIT_REMOTE
}
