package aitercmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/term"
)

// writeJSON prints v. With --json a command prints nothing else to stdout.
func (a *app) writeJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}

// table prints rows in aligned columns; the first row is the heading.
func (a *app) table(rows [][]string) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			end := "\t"
			if i == len(row)-1 {
				end = "\n"
			}
			fmt.Fprint(w, term.EscapeLine(cell), end)
		}
	}
	return w.Flush()
}

// writeFile writes a file completely or not at all: it writes a temporary file in the
// same folder and renames it. It writes directly to a name that is not a regular file,
// such as /dev/stdout.
func writeFile(path string, write func(*os.File) error) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return writeInPlace(path, write)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	err = errors.Join(write(f), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func writeInPlace(path string, write func(*os.File) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// nonNil returns list, or an empty list for nil, which JSON would encode as null.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// parseAge is [cache.ParseAge]; "" is 0, which means no condition.
func parseAge(s string) (time.Duration, error) { return parsed(s, cache.ParseAge) }

// parseSize is [cache.ParseSize]; "" is 0, which means no limit.
func parseSize(s string) (int64, error) { return parsed(s, cache.ParseSize) }

// parsed parses s; the error is a usage error.
func parsed[N any](s string, parse func(string) (N, error)) (n N, err error) {
	if s == "" {
		return n, nil
	}
	if n, err = parse(s); err != nil {
		err = &usageError{err}
	}
	return n, err
}

// formatSize formats a number of bytes.
func formatSize(n int64) string {
	f, unit := float64(n), "B"
	for _, next := range []string{"kB", "MB", "GB", "TB"} {
		if f < 1000 {
			break
		}
		f, unit = f/1000, next
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}

// formatAge formats a duration in one unit.
func formatAge(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// join lists values, separated by commas.
func join[T fmt.Stringer](list []T) string {
	var words []string
	for _, x := range list {
		words = append(words, x.String())
	}
	return strings.Join(words, ", ")
}

// fill breaks text into lines of at most width characters, unless a word is longer. There is at least one line.
func fill(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimLeft(line+" "+word, " ")
	}
	return append(lines, line)
}
