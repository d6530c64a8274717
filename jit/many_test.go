//go:build linux

package jit_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

var processes = flag.Int("processes", 16, "how many processes build at the same time")

// together starts processes, lets them build at the same time, and returns
// their outputs.
func (b *fixture) together(n int, env ...string) []string {
	b.t.Helper()
	gate, open, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	procs, outputs := make([]*exec.Cmd, n), make([]bytes.Buffer, n)
	for i := range procs {
		procs[i] = b.process()
		procs[i].Env = append(append(procs[i].Env, "AITER_TEST_GATE=1"), env...)
		procs[i].Stdin, procs[i].Stdout, procs[i].Stderr = gate, &outputs[i], &outputs[i]
		if err := procs[i].Start(); err != nil {
			b.t.Fatal(err)
		}
	}
	_ = gate.Close()
	_ = open.Close()
	texts := make([]string, n)
	for i, p := range procs {
		if err := p.Wait(); err != nil {
			b.t.Errorf("process %d: %v: %s", i, err, &outputs[i])
		}
		texts[i] = outputs[i].String()
	}
	return texts
}

// wantSame checks that all processes loaded the same library, and that it works.
func wantSame(t *testing.T, outputs []string) {
	t.Helper()
	for _, s := range outputs {
		if s != outputs[0] || !strings.HasSuffix(s, " demo_a=3\n") {
			t.Errorf("different libraries: %q and %q", s, outputs[0])
		}
	}
}

// links returns how often the compiler was called to link.
func (b *fixture) links() int {
	data, _ := os.ReadFile(b.beside("count.links"))
	return strings.Count(string(data), "\n")
}

func TestConcurrentProcessesCompileOnce(t *testing.T) {
	b := newFixture(t)
	b.hook("sleep 0.1")
	wantSame(t, b.together(*processes))
	if n := b.compiles(); n != 2 {
		t.Errorf("%d compiles, want one for each unit", n)
	}
	if n := b.links(); n != 1 {
		t.Errorf("%d links, want one", n)
	}
	b.noTrace()
}

// TestLocksWithoutEffect simulates a network filesystem on which every lock succeeds at once. Units
// are compiled more than once, and all libraries are right.
func TestLocksWithoutEffect(t *testing.T) {
	testenv.Long(t)
	b := newFixture(t)
	// Each compiler waits until a third has started, so that two processes compile at the
	// same time on any machine.
	b.hook("i=0; while test $(wc -l < '" + b.beside("count") + "') -lt 3 -a $i -lt 300; do sleep 0.1; i=$((i+1)); done")
	wantSame(t, b.together(*processes/2, "AITER_TEST_NOLOCKS=1"))
	if n := b.compiles(); n <= 2 {
		t.Errorf("%d compiles: the locks had an effect, so the test checks nothing", n)
	}
	b.hook("")
	b.compiles()
	wantSame(t, []string{b.together(1)[0]}) // with working locks, over the results of the others
	b.noTrace()
}
