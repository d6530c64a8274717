package testenv

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// Executor is a running server of the Remote Execution API (buildbox-casd) on loopback, with its own workers.
type Executor struct {
	Host string // "127.0.0.1:41234"
	Dir  string // its files
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// ExecutorOptions are the settings of an [Executor].
type ExecutorOptions struct {
	Dir  string // for its files
	Root string // root folder of its workers, made by scripts/root.sh; "" for this machine's
	Jobs int    // commands that it runs at a time; 0 for 2
	Next string // address of a server that has the storage, and that runs the commands for which this one has no worker
}

// StartExecutor starts buildbox-casd. The caller stops it.
func StartExecutor(program string, o ExecutorOptions) (*Executor, error) {
	program, err := filepath.EvalSymlinks(program)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	x := &Executor{Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Dir: o.Dir}
	argv := []string{program, "--bind", x.Host, "--buildbox-run=" + filepath.Join(filepath.Dir(program), "buildbox-run-hosttools"),
		"--jobs", strconv.Itoa(cmp.Or(o.Jobs, 2)), "--quota-high", "5G"}
	if o.Next != "" {
		next := "http://" + o.Next
		argv = append(argv, "--cas-remote", next, "--ac-remote", next, "--exec-remote", next, "--exec-hybrid-queue-limit", "1")
	}
	argv = append(argv, filepath.Join(o.Dir, "casd"))
	if root, dir := o.Root, o.Dir; root != "" {
		boxes := filepath.Dir(filepath.Dir(program))
		argv = append([]string{"bwrap", "--die-with-parent", "--ro-bind", filepath.Join(root, "usr"), "/usr",
			"--symlink", "usr/bin", "/bin", "--symlink", "usr/sbin", "/sbin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
			"--ro-bind", filepath.Join(root, "etc"), "/etc", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
			"--ro-bind", boxes, boxes, "--bind", dir, dir, "--"}, argv...)
	}
	x.cmd = exec.Command(argv[0], argv[1:]...)
	x.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR=" + o.Dir}
	x.cmd.Stdout, x.cmd.Stderr = &x.log, &x.log
	if err := x.cmd.Start(); err != nil {
		return nil, err
	}
	const limit = 30 * time.Second
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", x.Host); err == nil {
			return x, c.Close()
		}
		if time.Since(start) > limit {
			x.Stop()
			return nil, fmt.Errorf("%s does not listen after %s: %s", program, limit, x.log.String())
		}
	}
}

// Process returns the server's process.
func (x *Executor) Process() *os.Process { return x.cmd.Process }

// Stop ends the server.
func (x *Executor) Stop() {
	_ = x.cmd.Process.Signal(os.Interrupt)
	ended := make(chan struct{})
	go func() {
		_ = x.cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		_ = x.cmd.Process.Kill()
		<-ended
	}
}

// freePort returns a free port of loopback.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
