package jit

import (
	"slices"
	"strings"
)

// namesFiles reports whether the flags of the link may name files: a library, a script, a
// folder of libraries.
func (l *link) namesFiles() bool { return flagsNameFiles(l.flags) }

func flagsNameFiles(flags []string) bool {
	words := linkerWords(flags)
	for i, w := range words {
		value := i > 0 && slices.Contains(optionsWithoutFiles(), words[i-1])
		if namesFile(w) && !value {
			return true
		}
	}
	return false
}

// optionsWithoutFiles returns the linker's options whose value, the next word, is a keyword, a
// symbol or a name that the linker does not open.
func optionsWithoutFiles() []string {
	return []string{
		"-z", "--exclude-libs", "-soname", "--soname", "-h", "--hash-style", "-u", "--undefined", "--wrap", "--defsym", "-e", "--entry",
	}
}

// linkerWords returns the flags without the options of the compiler driver that
// pass words on to the linker.
func linkerWords(flags []string) []string {
	var words []string
	for _, f := range flags {
		switch option, inner, _ := strings.Cut(f, "="); {
		case strings.HasPrefix(f, "-Wl,"):
			words = append(words, strings.Split(f[len("-Wl,"):], ",")...)
		case slices.Contains(forwardingOptions(), option):
			words = append(words, strings.FieldsFunc(inner, func(r rune) bool { return r == ',' })...)
		default:
			words = append(words, f)
		}
	}
	return words
}

// forwardingOptions returns the options of compiler drivers whose values go to the linker. A
// value follows after "=" or in the next word.
func forwardingOptions() []string {
	return []string{"-Xlinker", "-Xoffload-linker", "--linker-options", "-Xcompiler", "--compiler-options"}
}

// namesFile reports whether a word of a linker's command line may name a file. An unknown
// word, such as the value of an option, counts as a name.
func namesFile(word string) bool {
	options := []string{
		"-l", "-L", "-T", "-R", "--library", "--script", "--version-script", "--dynamic-list", "--just-symbols",
		"--retain-symbols-file", "--symbol-ordering-file",
	}
	return !strings.HasPrefix(word, "-") || strings.ContainsAny(word, "./") ||
		slices.ContainsFunc(options, func(o string) bool { return strings.HasPrefix(word, o) })
}
