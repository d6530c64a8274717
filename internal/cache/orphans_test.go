//go:build linux

package cache

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// job starts a shell script like a compiler of a job: with dir as TMPDIR.
func job(t *testing.T, dir, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// atWork returns the processes with the stage as TMPDIR.
func atWork(t *testing.T, stage string) (pids []int) {
	t.Helper()
	at, err := os.Stat(stage)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && runsIn(pid, stage, at) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// awaitWork waits until n processes work in the stage.
func awaitWork(t *testing.T, stage string, n int) {
	t.Helper()
	for range 1000 {
		if len(atWork(t, stage)) >= n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%d processes at work, want %d", len(atWork(t, stage)), n)
}

// TestOrphansOfOneStage checks that processes of the stage are killed under another name of the
// folder too, and those of another folder with an equal last name are not.
func TestOrphansOfOneStage(t *testing.T) {
	stage, other := filepath.Join(t.TempDir(), "job-1"), filepath.Join(t.TempDir(), "job-1")
	link := filepath.Join(t.TempDir(), "link")
	for _, err := range []error{os.Mkdir(stage, 0o700), os.Mkdir(other, 0o700), os.Symlink(filepath.Dir(stage), link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	linked := job(t, filepath.Join(link, "job-1"), "exec sleep 600")
	spared := job(t, other, "exec sleep 600")
	awaitWork(t, stage, 1)
	awaitWork(t, other, 1)
	endOrphans(stage)
	if err := linked.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("under another name: %v", err)
	}
	if len(atWork(t, other)) != 1 {
		t.Error("a process of another stage was killed")
	}
	_ = spared.Process.Kill()
	_ = spared.Wait()
}

// TestOrphansHaveEnded checks that endOrphans returns only after the processes have closed their
// files in the stage.
func TestOrphansHaveEnded(t *testing.T) {
	stage := t.TempDir()
	large := job(t, stage, `x=$(head -c 50000000 /dev/zero | tr '\0' x); : > "$TMPDIR/ready"; while :; do sleep 600; done`)
	for range 1000 {
		if _, err := os.Stat(filepath.Join(stage, "ready")); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	endOrphans(stage)
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(large.Process.Pid), "stat"))
	if err != nil || !strings.Contains(string(stat), ") Z ") {
		t.Errorf("the process had not ended when endOrphans returned: %s, %v", stat, err)
	}
	_ = large.Wait()
}

// TestOrphansThatStartProcesses checks that endOrphans also kills processes that others start
// while it runs.
func TestOrphansThatStartProcesses(t *testing.T) {
	stage := t.TempDir()
	const n = 10
	for range n {
		first := job(t, stage, "exec sleep 600")
		second := job(t, stage, "while kill -0 "+strconv.Itoa(first.Process.Pid)+" 2>/dev/null; do :; done; sleep 600 & wait")
		go func() { _, _ = first.Wait(), second.Wait() }() // otherwise they would stay as zombies
	}
	awaitWork(t, stage, 2*n)
	endOrphans(stage)
	if left := atWork(t, stage); len(left) != 0 {
		t.Errorf("%d are left", len(left))
		endOrphans(stage)
	}
}
