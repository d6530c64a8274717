package aitercmd

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/aiter-go/aiter/internal/testenv"
)

// TestExecutorScript runs scripts with a real build farm at $FARM.
func TestExecutorScript(t *testing.T) {
	program := testenv.Tool(t, "buildbox-casd")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/executor",
		Setup: func(env *testscript.Env) error {
			for _, name := range []string{"AITER_JIT_EXECUTOR", "AITER_JIT_EXECUTOR_WAIT", "AITER_JIT_EXECUTOR_PLATFORM",
				"AITER_JIT_EXECUTOR_TOKEN", "AITER_JIT_EXECUTOR_CERTS"} {
				env.Setenv(name, "")
			}
			dir := filepath.Join(env.WorkDir, "farm")
			if err := errors.Join(setup(env), os.Mkdir(dir, 0o755)); err != nil {
				return err
			}
			x, err := testenv.StartExecutor(program, testenv.ExecutorOptions{Dir: dir})
			if err != nil {
				return err
			}
			env.Defer(x.Stop)
			env.Setenv("FARM", x.Host)
			return nil
		},
		Cmds:               map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		RequireUniqueNames: true,
	})
}
