package aitercmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/aiter-go/aiter/internal/profile"
	"github.com/aiter-go/aiter/tensor"
)

// profiler is a vendor's profiler.
type profiler struct {
	name, variable string
	folders        []string // searched after PATH; patterns of filepath.Glob
	path           string   // of the program that was found
	// command returns the profiler's own arguments, which precede the command line of the profiled program. The profiler writes its
	// files to dir.
	command func(dir string, counters []string) []string
}

// rocprofv3 returns AMD's profiler.
func rocprofv3(getenv func(string) string) profiler {
	return profiler{
		name: "rocprofv3", variable: "ROCPROFV3",
		folders: inFolders(getenv, []string{"ROCM_PATH", "ROCM_HOME"}, "bin", "/opt/rocm/bin", "/opt/rocm-*/bin"),
		command: func(dir string, counters []string) []string {
			if len(counters) == 0 {
				counters = []string{"SQ_WAVES", "GRBM_GUI_ACTIVE"} // all architectures have these
			}
			args := append([]string{"--pmc"}, counters...)
			return append(args, "--output-format", "csv", "-d", dir, "-o", "profile", "--")
		},
	}
}

// ncu returns NVIDIA's profiler.
func ncu(getenv func(string) string) profiler {
	return profiler{
		name: "ncu", variable: "NCU",
		folders: inFolders(getenv, []string{"CUDA_HOME", "CUDA_PATH"}, "bin", "/usr/local/cuda/bin", "/usr/local/cuda-*/bin",
			"/opt/nvidia/nsight-compute/*"),
		command: func(dir string, counters []string) []string {
			args := []string{"--csv", "--page", "details", "--print-units", "base", "--log-file", filepath.Join(dir, "profile.csv")}
			if len(counters) > 0 {
				args = append(args, "--metrics", strings.Join(counters, ","))
			} else {
				args = append(args, "--section", "SpeedOfLight", "--section", "LaunchStats", "--section", "Occupancy")
			}
			return args
		},
	}
}

// inFolders returns the subfolder below of each folder that a variable names, then others.
func inFolders(getenv func(string) string, variables []string, below string, others ...string) []string {
	var list []string
	for _, v := range variables {
		if dir := getenv(v); dir != "" {
			list = append(list, filepath.Join(dir, below))
		}
	}
	return append(list, others...)
}

// profilerError reports a profiler that is missing or fails.
type profilerError struct {
	name, variable string
	looked         []string // where a missing profiler was looked for
	err            error    // of the run, nil for a missing one
	output         string
}

func (e *profilerError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("%s was not found: not in PATH, nor in %s", e.name, strings.Join(e.looked, ", "))
	}
	text := fmt.Sprintf("%s failed: %v", e.name, e.err)
	if e.output != "" {
		text += "\n" + e.output
	}
	return text
}

// Unwrap returns the error of the run.
func (e *profilerError) Unwrap() error { return e.err }

// find returns the profiler with the path of its program: the one that its variable names, the one in PATH, or the first one in its
// folders. The errors are a usage error for a wrong variable, and a [*profilerError].
func (p profiler) find(getenv func(string) string) (*profiler, error) {
	if path := getenv(p.variable); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			return nil, usagef("%s=%s: %w", p.variable, path, err)
		}
		p.path = path
		return &p, nil
	}
	if path, err := exec.LookPath(p.name); err == nil {
		p.path = path
		return &p, nil
	}
	for _, pattern := range p.folders {
		found, _ := filepath.Glob(filepath.Join(pattern, p.name)) // a folder whose name breaks the pattern has no match
		for _, path := range found {
			if _, err := exec.LookPath(path); err == nil {
				p.path = path
				return &p, nil
			}
		}
	}
	return nil, &profilerError{name: p.name, variable: p.variable, looked: p.folders}
}

// profiler finds the profiler of a device for --counters; nil without the flag.
func (f *profileFlags) profiler(a *app, dev tensor.Device) (*profiler, error) {
	if !f.counters {
		if len(f.pmc) > 0 {
			return nil, usagef("--pmc needs --counters")
		}
		return nil, nil
	}
	switch dev.Type {
	case tensor.ROCM:
		return rocprofv3(a.getenv).find(a.getenv)
	case tensor.CUDA:
		return ncu(a.getenv).find(a.getenv)
	}
	return nil, usagef("--counters: the profilers rocprofv3 and ncu are for GPUs, and the calls are on %s; give --device", dev)
}

// profilerTimeout limits a run: a profiler runs each kernel several times.
const profilerTimeout = 10 * time.Minute

// countersOf runs this program under the profiler, with few calls, and reads its files.
func (a *app) countersOf(ctx context.Context, p *profiler, f *profileFlags) ([]profile.Counter, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program for %s: %w", p.name, err)
	}
	dir, err := os.MkdirTemp("", "aiter-profile-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, profilerTimeout)
	defer cancel()
	a.err.SetStatus("running " + p.name)
	cmd := exec.CommandContext(ctx, p.path, append(append(p.command(dir, f.pmc), self), childArgs(a.args)...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, 5*time.Second
	if err := cmd.Run(); err != nil {
		err = errors.Join(err, context.Cause(ctx))
		return nil, &profilerError{name: p.name, variable: p.variable, err: err, output: tail(p.messages(dir) + out.String())}
	}
	files, err := csvFiles(dir)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, &profilerError{name: p.name, variable: p.variable, err: errors.New("it wrote no CSV file"), output: tail(out.String())}
	}
	found, err := profile.Import(files...)
	if err != nil {
		return nil, &profilerError{name: p.name, variable: p.variable, err: err, output: tail(p.messages(dir) + out.String())}
	}
	return found.Counter, nil
}

// messages returns the messages of ncu, which it writes to the same file as its table.
func (p *profiler) messages(dir string) string {
	text, _ := os.ReadFile(filepath.Join(dir, "profile.csv")) // rocprofv3 has no such file
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "==") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// tail returns the last lines of a text.
func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}

// csvFiles lists the CSV files below a folder.
func csvFiles(dir string) ([]string, error) {
	var list []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".csv") && !strings.HasSuffix(path, "_agent_info.csv") {
			list = append(list, path)
		}
		return err
	})
	return list, err
}

// childArgs returns the arguments of the command that the profiler runs: without those that write files or start a profiler.
func childArgs(args []string) []string {
	var list []string
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(args[i], "=")
		switch name {
		case "--counters":
		case "--html", "--trace", "--pmc", "--calls":
			if !joined {
				i++
			}
		default:
			list = append(list, args[i])
		}
	}
	return append(list, "--calls", "2", "--quiet")
}

// hintProfiler describes how to install or allow a profiler.
func hintProfiler(err error) string {
	var e *profilerError
	switch {
	case !errors.As(err, &e):
		return ""
	case strings.Contains(e.output, "ERR_NVGPUCTRPERM"):
		return "the driver allows counters for root only: run as root, or load the module nvidia with " +
			"NVreg_RestrictProfilingToAdminUsers=0; without --counters no permission is needed"
	case e.err != nil:
		return "without --counters the times are measured by events, which needs no profiler"
	case e.name == "ncu":
		return "install Nsight Compute (Debian and Ubuntu, NVIDIA's repository: apt-get install nsight-compute-2025.3.0, or the CUDA toolkit), " +
			"or name the program: export NCU=/usr/local/cuda/bin/ncu"
	}
	return "install it with ROCm 6.2 or later (AMD's repository: apt-get install rocprofiler-sdk), or name the program: " +
		"export ROCPROFV3=/opt/rocm/bin/rocprofv3"
}
