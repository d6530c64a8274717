//go:build linux

package registry_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A program that sets nothing gets warnings and compiles on standard error. AITER_LOG_LEVEL changes the level.
func TestLogOfAProgramThatSetsNothing(t *testing.T) {
	dir, root := builtCache(t), editedTree(t)
	run := func(level string) (stderr string, err error) {
		var out, errs strings.Builder
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "AITER_TEST_CALL=1", "AITER_JIT_DIR="+dir, "AITER_META_DIR="+root,
			"AITER_JIT_PATH=/nonexistent", "AITER_LOG_LEVEL="+level)
		cmd.Stdout, cmd.Stderr = &out, &errs
		err = cmd.Run()
		if err == nil && out.String() != "called\n" {
			err = errors.New("no call")
		}
		return errs.String() + out.String(), err
	}
	const compiling, compiled, warning, step = " INFO compiling ", " INFO compiled ", " WARN a read-only cache", " DEBUG unit hit "
	for _, c := range []struct {
		what, level string
		with, not   []string
	}{
		{"cold", "", []string{warning, compiling, compiled, "module_causal_conv1d for cpu", "seconds="}, []string{"DEBUG"}},
		{"warm", "", []string{warning}, []string{"INFO", "DEBUG"}},
		{"only errors", "error", nil, []string{"WARN", "INFO", "DEBUG"}},
		{"all steps", "Debug", []string{warning, step}, nil},
	} {
		log, err := run(c.level)
		if err != nil {
			t.Fatalf("%s: %v: %s", c.what, err, log)
		}
		for _, want := range c.with {
			if !strings.Contains(log, want) {
				t.Errorf("%s: the log lacks %q:\n%s", c.what, want, log)
			}
		}
		for _, not := range c.not {
			if strings.Contains(log, not) {
				t.Errorf("%s: the log has %q:\n%s", c.what, not, log)
			}
		}
	}
	if out, err := run("loud"); err == nil || !strings.Contains(out, `AITER_LOG_LEVEL is "loud": expected trace, debug, info, warn or error`) {
		t.Errorf("a wrong level: %v: %s", err, out)
	}
}
