package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// timedSource is a source that measures the time that a build spends in it.
type timedSource struct {
	jit.Source
	mu    sync.Mutex
	delay time.Duration
}

func (s *timedSource) add(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay += time.Since(since)
}

// Pulled implements [jit.Source].
func (s *timedSource) Pulled(want jit.Request) []*cache.Dir {
	defer s.add(time.Now())
	return s.Source.Pulled(want)
}

// Pull implements [jit.Source].
func (s *timedSource) Pull(ctx context.Context, want jit.Request) (*cache.Dir, error) {
	defer s.add(time.Now())
	return s.Source.Pull(ctx, want)
}

// started is what startChild reports.
type started struct {
	Delay time.Duration // in the source, from opening it
	Cause jit.PullCause // of the error, "" for none
	Error string
}

// childNode is the node of startChild.
type childNode struct {
	Root, Cache string
	Env         map[string]string
}

// startChild is the process of a node: it builds what a first call needs and reports the delay by the source.
func startChild() int {
	var n childNode
	if err := json.Unmarshal([]byte(os.Getenv("AITER_TEST_START")), &n); err != nil {
		println(err.Error())
		return 1
	}
	timed := &timedSource{}
	s := managerSettings(fixture{root: n.Root}, n.Cache, n.Env, &events{})
	s.Remote = func(so jit.SourceOptions) (_ jit.Source, err error) {
		defer timed.add(time.Now())
		if timed.Source, err = Open(so); timed.Source == nil {
			return nil, err
		}
		return timed, err
	}
	m, err := s.OpenManager(context.Background())
	if err == nil {
		_, err = m.Build(context.Background(), requests()...)
		err = errors.Join(err, m.Close())
	}
	out := started{Delay: timed.delay}
	if err != nil {
		out.Error = err.Error()
	}
	var pull *jit.PullError
	if errors.As(err, &pull) {
		out.Cause = pull.Cause
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		println(err.Error())
		return 1
	}
	return 0
}

// process starts a process of the node.
func (n *node) process() (s started, err error) {
	data, err := json.Marshal(childNode{n.f.root, n.cache, n.env})
	if err != nil {
		return s, err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "AITER_TEST_START="+string(data))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return s, err
	}
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		return s, fmt.Errorf("%w: %s", err, out.Bytes())
	}
	return s, nil
}

// nextProcess starts a process of the node.
func (n *node) nextProcess() started {
	n.t.Helper()
	s, err := n.process()
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

const (
	leastTries = 3
	tryTime    = 20 * time.Second

	// raceDelay is added to limits under the race detector, whose tests run beside those of other packages and take more processor time.
	raceDelay = 500 * time.Millisecond
)

// within measures a time until it is at most most. It fails the test after at least leastTries measurements in at least tryTime, because
// other work delays processes too.
func within(t *testing.T, what string, most time.Duration, measure func() time.Duration) {
	t.Helper()
	if testenv.Race {
		most += raceDelay
	}
	var got []time.Duration
	for begin := time.Now(); len(got) < leastTries || time.Since(begin) < tryTime; {
		took := measure()
		if took <= most || t.Failed() {
			return
		}
		got = append(got, took)
	}
	t.Errorf("%s: at least %s in %d tries, want at most %s", what, slices.Min(got), len(got), most)
}
