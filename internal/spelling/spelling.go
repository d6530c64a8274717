// Package spelling writes words of messages: lists, numbers with nouns, and the names that a misspelled name may mean.
package spelling

import (
	"cmp"
	"slices"
	"strings"
)

// Nearest returns up to three similar names, best first: names with a similar spelling, then
// names that contain the written text.
func Nearest(written string, names []string) []string {
	best := alike(written, names)
	for _, n := range names {
		if len(written) >= 3 && strings.Contains(n, strings.ToLower(written)) && !slices.Contains(best, n) {
			best = append(best, n)
		}
	}
	return best[:min(3, len(best))]
}

// NearestWord returns the word with the most similar spelling, or "".
func NearestWord(written string, words []string) string {
	if best := alike(written, words); len(best) > 0 {
		return best[0]
	}
	return ""
}

// alike returns the words that differ from the written one in at most a third of the letters,
// best first. It ignores case.
func alike(written string, words []string) []string {
	differing := func(w string) int { return distance(strings.ToLower(written), strings.ToLower(w)) }
	var list []string
	for _, w := range words {
		most := (max(len(written), len(w)) + 2) / 3
		longer := max(len(written)-len(w), len(w)-len(written))
		if longer <= most && differing(w) <= most { // longer is cheap to compute, and at most the distance
			list = append(list, w)
		}
	}
	slices.SortStableFunc(list, func(a, b string) int { return cmp.Compare(differing(a), differing(b)) })
	return list
}

// distance returns the number of edits that turn a into b. An edit inserts, removes or replaces a letter, or swaps two neighbours.
func distance(a, b string) int {
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
