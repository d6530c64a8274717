// Package shell writes words for a POSIX shell.
package shell

import "strings"

// Quote returns a word in single quotes if the shell would change it without them.
func Quote(word string) string {
	if word != "" && !strings.ContainsFunc(word, isSpecial) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Join returns a command as a line for the shell.
func Join(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = Quote(word)
	}
	return strings.Join(words, " ")
}

func isSpecial(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_=+,./:@%^", r))
}
