package spelling

import (
	"fmt"
	"strings"
)

// OneOf lists alternatives: "a, b or c". Of more than 20 it lists the first 20 and counts the others.
func OneOf(words []string) string {
	const most = 20
	if len(words) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
	}
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// Count returns a number with a noun: "1 mistake", "2 mistakes".
func Count[N int | int64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
