package main

import (
	"fmt"
	"strconv"
	"strings"
)

// assumptionsTable returns a table in Markdown.
func assumptionsTable(list []assumption) string {
	var b strings.Builder
	b.WriteString("| flag | value | meaning | source |\n|---|---|---|---|\n")
	for _, a := range list {
		fmt.Fprintf(&b, "| `--%s` | %s | %s | %s |\n", a.name, a.value, a.meaning, a.source)
	}
	return b.String()
}

// resultsTable returns a table in Markdown.
func resultsTable(list []result) string {
	var b strings.Builder
	b.WriteString("| scenario | last node ready | median | compiles | compiler hours | GB from server | GB to server | GB between nodes |\n")
	b.WriteString("|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range list {
		fmt.Fprintf(&b, "| %s | %s s | %s s | %s | %s | %s | %s | %s |\n", r.Name, short(r.Last), short(r.Median), thousands(r.Compiles),
			short(r.Hours), gigabytes(r.FromServer), gigabytes(r.ToServer), gigabytes(r.Between))
	}
	return b.String()
}

// short formats a number with one decimal below 100, and without decimals from there on.
func short(x float64) string {
	if x == 0 || x >= 100 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'f', 1, 64)
}

func gigabytes(bytes float64) string { return short(bytes / 1e9) }

// thousands formats a number with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
