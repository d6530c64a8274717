package aiter_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestDocsLengths checks the lengths of documents that have a limit. Bars and rules of tables do not count as words.
func TestDocsLengths(t *testing.T) {
	if n := strings.Count(readText(t, "README.md"), "\n"); n > 150 {
		t.Errorf("README.md has %d lines, at most 150", n)
	}
	const mostTerms = 40
	if n := len(regexp.MustCompile(`(?m)^\| [^|]*\|`).FindAllString(readText(t, "docs/glossary.md"), -1)); n > mostTerms {
		t.Errorf("docs/glossary.md has %d rows, at most %d; terms of one package go into its package comment, and those of the kernels into "+
			"csrc/kernels/causal_conv1d/README.md", n, mostTerms)
	}
	word := regexp.MustCompile(`\S*[\pL\pN]\S*`)
	for name, most := range map[string]int{"docs/performance.md": 1500, "docs/experiments.md": 2500} {
		if n := len(word.FindAllString(readText(t, name), -1)); n > most {
			t.Errorf("%s has %d words, at most %d", name, n, most)
		}
	}
}

// TestSourceLengths checks that Go and C++ files have at most 400 lines, of at most 140 characters. Directives and generated files may
// have more.
func TestSourceLengths(t *testing.T) {
	err := walkSources(func(file string) error {
		text := readText(t, file)
		if strings.HasPrefix(text, "// Code generated ") {
			return nil
		}
		if n := strings.Count(text, "\n"); n > 400 {
			t.Errorf("%s has %d lines, at most 400", file, n)
		}
		for i, line := range strings.Split(text, "\n") {
			if n := utf8.RuneCountInString(line); n > 140 && !strings.HasPrefix(line, "//go:") {
				t.Errorf("%s:%d has %d characters, at most 140", file, i+1, n)
			}
		}
		return nil
	}, ".go", ".h", ".hip", ".cu", ".cpp", ".cc", ".c")
	if err != nil {
		t.Error(err)
	}
}

// TestDecisions checks that each heading of DECISIONS.md is a question, with an answer of one to four sentences.
func TestDecisions(t *testing.T) {
	code, end := regexp.MustCompile("`[^`]*`"), regexp.MustCompile(`[.!?](\s|$)`)
	_, entries, _ := strings.Cut(readText(t, "docs/DECISIONS.md"), "\n### ")
	for entry := range strings.SplitSeq(entries, "\n### ") {
		question, answer, _ := strings.Cut(entry, "\n")
		answer, _, _ = strings.Cut(answer, "\n## ")
		var text strings.Builder
		for line := range strings.Lines(answer) {
			if !strings.HasPrefix(line, "|") {
				text.WriteString(line)
			}
		}
		if n := len(end.FindAllString(code.ReplaceAllString(text.String(), "code"), -1)); !strings.HasSuffix(question, "?") || n < 1 || n > 4 {
			t.Errorf("DECISIONS.md, %q: %d sentences, want a question and 1 to 4", question, n)
		}
	}
}
