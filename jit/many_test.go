package jit_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
)

var processes = flag.Int("processes", 16, "how many processes build at the same time")

// together starts processes that all wait at a gate, opens it, and returns
// what they print.
func (b *bench) together(n int, env ...string) []string {
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
	said := make([]string, n)
	for i, p := range procs {
		if err := p.Wait(); err != nil {
			b.t.Errorf("process %d: %v: %s", i, err, &outputs[i])
		}
		said[i] = outputs[i].String()
	}
	return said
}

// wantSame checks that all processes have the same library, and that it works.
func wantSame(t *testing.T, said []string) {
	t.Helper()
	for _, s := range said {
		if s != said[0] || !strings.HasSuffix(s, " demo_a=3\n") {
			t.Errorf("different libraries: %q and %q", s, said[0])
		}
	}
}

// links returns how often the compiler was called to link.
func (b *bench) links() int {
	data, _ := os.ReadFile(b.count + ".links")
	return strings.Count(string(data), "\n")
}

func TestManyProcessesOneCompile(t *testing.T) {
	b := newBench(t)
	b.compiler("sleep 0.1")
	wantSame(t, b.together(*processes))
	if n := b.compiles(); n != 2 {
		t.Errorf("%d compiles, want one each unit", n)
	}
	if n := b.links(); n != 1 {
		t.Errorf("%d links, want one", n)
	}
	b.noTrace()
}

// TestLocksThatExcludeNobody is a network filesystem on which every lock
// succeeds at once: more is compiled, and all of it right.
func TestLocksThatExcludeNobody(t *testing.T) {
	b := newBench(t)
	// A compiler that goes on when a third has begun: however slow the machine,
	// two processes are at it together.
	b.compiler("i=0; while test $(wc -l < '" + b.count + "') -lt 3 -a $i -lt 300; do sleep 0.1; i=$((i+1)); done")
	wantSame(t, b.together(*processes/2, "AITER_TEST_NOLOCKS=1"))
	if n := b.compiles(); n <= 2 {
		t.Errorf("%d compiles: the locks excluded somebody, nothing is tested", n)
	}
	b.compiler("")
	b.compiles()
	wantSame(t, []string{b.together(1)[0]}) // whose locks hold, of what the others left
	b.noTrace()
}
