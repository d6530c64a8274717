package jit

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// isInputError reports whether the inputs of a run caused its failure, so that another run
// would fail too: the program exited by itself, printed an error about the input, and printed
// no error about the machine.
func isInputError(out outcome) bool {
	if !strings.HasPrefix(out.reason, "exit status ") {
		return false
	}
	found, located, input, machine := false, locatedError(), inputErrorWords(), machineErrorWords()
	for line := range bytes.Lines(out.output) {
		text := strings.TrimRight(string(line), "\r\n")
		switch {
		case strings.HasPrefix(text, " "): // a quotation of the source
		case containsAny(strings.ToLower(text), machine):
			return false
		case located.MatchString(text) || containsAny(text, input):
			found = true
		}
	}
	return found
}

// locatedError returns the form of an error in a file: "a.cpp:3:9: error: ..." of GCC and
// Clang, "a.cu(3): error: ..." of nvcc.
func locatedError() *regexp.Regexp {
	return regexp.MustCompile(`^[^ ].*?(:\d+(:\d+)?:|\(\d+\):) (fatal )?error\b`)
}

// inputErrorWords returns words that occur in messages of code generators, linkers and
// drivers about errors in their input.
func inputErrorWords() []string {
	return []string{
		"ptxas error", "ptxas fatal", "nvcc fatal   : Unknown option", "error: <unknown>:0:0:", "<inline asm>:",
		"unrecognized command-line option", "unrecognized command line option", "unknown argument", "unsupported option",
		"undefined reference to", "undefined symbol:", "multiple definition of", "duplicate symbol:",
		"ld: cannot find ", "ld.bfd: cannot find ", "cannot open linker script file", "unable to find library -l",
	}
}

// machineErrorWords returns words, in lower case, that occur in messages about failures
// without relation to the inputs: a crash, a kill, an error of the system other than a
// missing file.
func machineErrorWords() []string {
	words := []string{
		"internal compiler error", "internal error", "bug report", "out of memory", "memory exhausted", "bad_alloc",
		"killed", "terminated by signal", "terminated due to signal", "died due to signal", "segmentation fault",
		"stack dump", "core dumped", "cannot execute", "unable to execute",
	}
	for errno := syscall.Errno(1); errno <= lastErrno; errno++ {
		if errno != syscall.ENOENT {
			words = append(words, strings.ToLower(errno.Error()))
		}
	}
	return words
}

// lastErrno is the highest error number of Linux.
const lastErrno = 133

func containsAny(line string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) })
}

// missingHeaders returns the names of headers that were not found, as the source writes
// them. certain is false if a message about a missing file has an unknown form.
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
