package testenv

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Registry is a running registry for container images (distribution) on loopback.
type Registry struct {
	Host string // "127.0.0.1:41234"
	Dir  string // its files
	cmd  *exec.Cmd
	stop sync.Once
}

// StartRegistry starts the program of a registry with its files in dir. extra is added to its configuration, such as an "auth"
// section; http is added to the section "http". The caller stops it.
func StartRegistry(program, dir, extra, http string) (*Registry, error) {
	config := fmt.Sprintf("version: 0.1\nlog: {level: info, accesslog: {disabled: true}}\nstorage:\n  filesystem: {rootdirectory: %s}\n"+
		"  delete: {enabled: true}\nhttp:\n  addr: 127.0.0.1:0\n%s%s", filepath.Join(dir, "data"), http, extra)
	path := filepath.Join(dir, "registry.yml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "serve", path)
	cmd.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	log, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &Registry{Dir: dir, cmd: cmd}
	host := make(chan string, 1)
	go func() {
		listening := regexp.MustCompile(`listening on ([0-9.]+:[0-9]+)`)
		var text strings.Builder
		lines := bufio.NewScanner(log)
		for lines.Scan() {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				host <- m[1]
			}
			text.WriteString(lines.Text() + "\n")
		}
		select { // the registry ended
		case host <- "\n" + text.String():
		default:
		}
	}()
	const limit = 30 * time.Second
	select {
	case r.Host = <-host:
		if strings.HasPrefix(r.Host, "\n") {
			return nil, fmt.Errorf("the registry ended:%s", r.Host)
		}
		return r, nil
	case <-time.After(limit):
		r.Stop()
		return nil, fmt.Errorf("the registry does not listen after %s", limit)
	}
}

// Process returns the registry's process.
func (r *Registry) Process() *os.Process { return r.cmd.Process }

// Stop kills the registry. Concurrent calls are allowed.
func (r *Registry) Stop() {
	r.stop.Do(func() {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	})
}
