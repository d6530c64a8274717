package opconfig

import (
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/spelling"
)

// A configuration may use only flags of which it is known which files they read and write. A list of dangerous flags would not be
// enough: programs accept an option under several names, and GNU ld accepts abbreviations.

// flagRules are the rules for the flags of one program.
type flagRules struct {
	refused []flagRule             // patterns of flags that are refused, with the reasons
	allowed string                 // patterns of flags that are allowed; see matchesAllowed
	bare    func(word string) bool // reports whether a word without "-" is allowed; nil: none is
	files   func(flag string) bool // reports whether a flag names a file; nil: only refused flags do
}

type flagRule struct{ reason, patterns string }

// refusal is the reason why a flag is not allowed, and the flag that was probably meant.
type refusal struct{ reason, nearest string }

// refuse returns the reason why an argument is not allowed, the zero refusal if it is allowed.
func (r *flagRules) refuse(flag string) refusal {
	switch {
	case strings.HasPrefix(flag, "@"):
		return refusal{reason: reasonFile}
	case isCommand(flag), isDivided(flag):
		return refusal{reason: reasonCommand}
	}
	for _, rule := range r.refused {
		if matchesAny(rule.patterns, flag) {
			return refusal{reason: rule.reason}
		}
	}
	switch {
	case r.files != nil && r.files(flag):
		return refusal{reason: reasonNamesFile}
	case !strings.HasPrefix(flag, "-") && r.bare != nil && r.bare(flag):
		return refusal{}
	case !strings.HasPrefix(flag, "-"):
		return refusal{reason: reasonNoFlag}
	case matchesAllowed(r.allowed, flag):
		return refusal{}
	}
	return refusal{reasonUnknown, r.nearest(flag)}
}

// nearest returns the allowed flag with the most similar spelling, with the value of flag.
func (r *flagRules) nearest(flag string) string {
	name, value, valued := strings.Cut(flag, "=")
	var names []string
	for pattern := range strings.FieldsSeq(r.allowed) {
		known, _, takes := strings.Cut(pattern, "=")
		if !strings.HasSuffix(known, "*") && takes == valued && known != name {
			names = append(names, known)
		}
	}
	best := spelling.NearestWord(name, names)
	if best != "" && valued {
		best += "=" + value
	}
	return best
}

// matchesAny reports whether a flag matches one of the patterns. "*" at the end of a pattern
// stands for any characters.
func matchesAny(patterns, flag string) bool {
	for pattern := range strings.FieldsSeq(patterns) {
		prefix, open := strings.CutSuffix(pattern, "*")
		if flag == pattern || open && strings.HasPrefix(flag, prefix) {
			return true
		}
	}
	return false
}

// matchesAllowed reports whether a flag matches one of the patterns. "-x" has no value, "-x=*"
// has one, and "-x*" stands for all names with that prefix. A pattern without a value never
// matches a flag with one, because the value may name a file.
func matchesAllowed(patterns, flag string) bool {
	name, _, valued := strings.Cut(flag, "=")
	for pattern := range strings.FieldsSeq(patterns) {
		known, _, takes := strings.Cut(pattern, "=")
		prefix, open := strings.CutSuffix(known, "*")
		if takes == valued && (name == known || open && strings.HasPrefix(name, prefix)) {
			return true
		}
	}
	return false
}

// isCommand reports whether a shell would run a command in a flag. nvcc runs its steps by a shell.
func isCommand(flag string) bool { return strings.Contains(flag, "$(") || strings.Contains(flag, "`") }

// shellMarks are the characters that separate commands of a shell or redirect their input and output.
const shellMarks = ";|&<>"

// throughShell reports whether nvcc puts the value of a flag into the command line of a shell without quotes.
func throughShell(outer string) bool {
	return !slices.Contains([]string{"-Wp", "-Wa", "-Xpreprocessor", "-Xassembler"}, outer) && !strings.HasPrefix(outer, "-Xarch_")
}

// isDivided reports whether a shell would split a flag that nvcc forwards. nvcc quotes the names of macros and files.
func isDivided(flag string) bool {
	return strings.HasPrefix(flag, "-") && strings.ContainsAny(flag, shellMarks+" ") && !matchesAny("-D* -U* -i* -L* -l* -T*", flag)
}

// isThreads reports whether a flag sets nvcc's number of threads.
func isThreads(flag string) bool { return flag == "--threads" || flag == "-threads" || flag == "-t" }

// passesOn returns the rules of the program to which the flag outer passes its value. ok is false
// for other flags.
func passesOn(outer string) (rules *flagRules, ok bool) {
	switch outer {
	case "-Wl", "-Xlinker", "-Xoffload-linker", "--linker-options":
		return linkerWords(), true
	case "-Wa", "-Xassembler":
		return assemblerWords(), true
	case "-Wp", "-Xpreprocessor", "-Xcompiler", "--compiler-options":
		return innerWords(), true
	case "-Xclang":
		return cc1Words(), true
	case "-Xptxas", "--ptxas-options", "-Xcuda-ptxas":
		return ptxasWords(), true
	case "-Xnvlink", "--nvlink-options", "-Xcudafe", "-Xfatbin", "--fatbin-options", "-Xcuda-fatbinary":
		return toolWords(), true
	case "-mllvm":
		return llvmWords(), true
	}
	if strings.HasPrefix(outer, "-Xarch_") {
		return innerWords(), true
	}
	return nil, false
}

// flagCheck checks the arguments of a list in their order.
type flagCheck struct {
	rules *flagRules
	outer string // the last flag that passes its value to another program
	inner string // its value
}

// flag checks an argument that is not the value of the flag before it.
func (c *flagCheck) flag(flag string) refusal {
	if _, passes := passesOn(flag); passes {
		return refusal{} // its value follows
	}
	for _, separator := range []string{",", "="} {
		outer, value, ok := strings.Cut(flag, separator)
		isComma := slices.Contains([]string{"-Wl", "-Wa", "-Wp"}, outer)
		if _, passes := passesOn(outer); ok && passes && isComma == (separator == ",") {
			return c.value(outer, value)
		}
	}
	return c.rules.refuse(flag)
}

// value checks the argument that belongs to the flag before it.
func (c *flagCheck) value(outer, value string) refusal {
	rules, passes := passesOn(outer)
	if !passes {
		switch {
		case strings.HasPrefix(value, "@"):
			return refusal{reason: reasonFile} // drivers expand it at any position
		case isCommand(value):
			return refusal{reason: reasonCommand}
		case isThreads(outer) && !isPlainWord(value):
			return refusal{reason: reasonNoNumber}
		}
		return refusal{}
	}
	words := []string{value}
	if outer != "-mllvm" && outer != "-Xclang" {
		if strings.ContainsAny(value, shellMarks) && throughShell(outer) {
			return refusal{reason: reasonCommand}
		}
		words = strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' && throughShell(outer) })
	}
	for _, word := range words {
		before := c.inner
		if c.outer != outer {
			before = ""
		}
		c.outer, c.inner = outer, word
		if r := checkInner(rules, before, word); r.reason != "" {
			return r
		}
	}
	return refusal{}
}

// checkInner checks a word for another program after the word before it.
func checkInner(rules *flagRules, before, word string) refusal {
	switch before {
	case "-target-feature":
		if strings.HasPrefix(word, "+") || strings.HasPrefix(word, "-") {
			return refusal{}
		}
	case "-mllvm":
		return llvmWords().refuse(word)
	case "--param":
		if !strings.HasPrefix(word, "@") {
			return refusal{}
		}
	}
	for _, outer := range []string{"-mllvm=", "--mllvm=", "-plugin-opt=", "--plugin-opt="} {
		if option, ok := strings.CutPrefix(word, outer); ok && (strings.HasPrefix(option, "-") || !strings.Contains(outer, "plugin")) {
			return llvmWords().refuse(option)
		}
	}
	return rules.refuse(word)
}
