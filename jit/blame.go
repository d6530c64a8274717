package jit

import (
	"bytes"
	"regexp"
	"strings"
	"syscall"
)

// blamesInputs says whether a run failed because of what it was given, so that
// it would fail again: it ended by itself, says so in the words of a compiler,
// and speaks of no trouble with the machine.
func blamesInputs(out outcome) bool {
	if !strings.HasPrefix(out.reason, "exit status ") {
		return false
	}
	blamed := false
	for line := range bytes.Lines(out.output) {
		text := strings.TrimRight(string(line), "\r\n")
		switch {
		case strings.HasPrefix(text, " "): // the source, quoted
		case speaksOfMachine(text):
			return false
		case diagnosis(text):
			blamed = true
		}
	}
	return blamed
}

// diagnosis recognises an error in a file ("a.cpp:3:9: error: ...", GCC and
// Clang; "a.cu(3): error: ...", nvcc), and those of code generators, linkers
// and drivers that follow from their input alone.
func diagnosis(line string) bool {
	if regexp.MustCompile(`^[^ ].*?(:\d+(:\d+)?:|\(\d+\):) (fatal )?error\b`).MatchString(line) {
		return true
	}
	for _, words := range []string{
		"ptxas error", "ptxas fatal", "nvcc fatal   : Unknown option", "error: <unknown>:0:0:", "<inline asm>:",
		"unrecognized command-line option", "unrecognized command line option", "unknown argument", "unsupported option",
		"undefined reference to", "undefined symbol:", "multiple definition of", "duplicate symbol:",
	} {
		if strings.Contains(line, words) {
			return true
		}
	}
	return false
}

// speaksOfMachine recognises a failure for reasons outside of the inputs: an
// error of the system other than a file that is not there, a crash, a kill.
func speaksOfMachine(line string) bool {
	line = strings.ToLower(line)
	for _, words := range []string{
		"internal compiler error", "internal error", "bug report", "out of memory", "memory exhausted", "bad_alloc",
		"killed", "terminated by signal", "terminated due to signal", "died due to signal", "segmentation fault", "stack dump", "core dumped", "cannot execute", "unable to execute",
	} {
		if strings.Contains(line, words) {
			return true
		}
	}
	for errno := syscall.Errno(1); errno <= 133; errno++ {
		if errno != syscall.ENOENT && strings.Contains(line, strings.ToLower(errno.Error())) {
			return true
		}
	}
	return false
}

// missingHeaders returns the names of headers that were not found, as the
// source has them. It is not certain when a complaint of that kind is not
// understood.
func missingHeaders(output []byte) (names []string, certain bool) {
	forms := []*regexp.Regexp{
		regexp.MustCompile(`error: '([^']+)' file not found`),
		regexp.MustCompile(`error: ([^:]+): No such file or directory$`),
		regexp.MustCompile(`error: cannot open source file "([^"]+)"`),
	}
	certain = true
	for line := range bytes.Lines(output) {
		text := strings.TrimRight(string(line), "\r\n")
		found := false
		for _, form := range forms {
			if m := form.FindStringSubmatch(text); m != nil {
				names, found = append(names, m[1]), true
			}
		}
		if !found && !strings.HasPrefix(text, " ") && looksMissing(text) {
			certain = false
		}
	}
	return names, certain
}

func looksMissing(line string) bool {
	return strings.Contains(line, "No such file") || strings.Contains(line, "file not found") || strings.Contains(line, "cannot open")
}
