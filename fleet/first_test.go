package fleet

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// firstCallTime is the goal for a process of an empty node with a registry on the same machine, to the end of its first call.
const firstCallTime = 300 * time.Millisecond

// callChild is a program of a node that calls the operator of the fixture.
func callChild() int {
	var n childNode
	err := json.Unmarshal([]byte(os.Getenv("AITER_TEST_CALL")), &n)
	if err == nil {
		err = callSmall(n)
	}
	if err != nil {
		println(err.Error())
		return 1
	}
	return 0
}

func callSmall(n childNode) error {
	s := managerSettings(fixture{root: n.Root}, n.Cache, n.Env, nil)
	ctx := device.WithStream(context.Background(), device.Stream{Device: tensor.Host()})
	reg, err := registry.Open(ctx, registry.Options{
		Root: n.Root, CacheDir: n.Cache, Path: []string{}, Remote: Open, Getenv: s.Getenv, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer reg.Close()
	op, err := reg.Lookup("small")
	if err != nil {
		return err
	}
	return op.Call(ctx)
}

// TestFirstCall starts programs on empty nodes. Each pulls what its first call needs.
func TestFirstCall(t *testing.T) {
	testenv.Long(t) // a measurement
	f, r := prebuilt(t), startRegistry(t)
	private, public := newKeys(t)
	push(t, r.Host+"/aiter/kernels:v1", f.built, private)
	within(t, "start and first call of a program", firstCallTime, func() time.Duration {
		n := newNode(t, f, "oci://"+r.Host+"/aiter/kernels:v1", public)
		n.env["AITER_NO_COMPILE"] = "1"
		data, err := json.Marshal(childNode{n.f.root, n.cache, n.env})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		// A program with the race detector sleeps for a second at its end by default.
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "AITER_TEST_CALL="+string(data))
		start := time.Now()
		out, err := cmd.CombinedOutput()
		took := time.Since(start)
		if names := openCache(t, n.cache).PulledNames(""); err != nil || len(names) != 2 {
			t.Errorf("%v, pulled %q, want 2 caches\n%s", err, names, out)
		}
		t.Logf("%s", took)
		return took
	})
}
