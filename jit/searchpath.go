package jit

import (
	"path"
	"strings"
)

// flagDirs returns the folders that flags add to the search for headers: those
// for quoted names alone, those before the system's, those after.
func flagDirs(flags []string) (quote, system, after []string) {
	to := map[string]*[]string{"-iquote": &quote, "-isystem": &system, "-idirafter": &after}
	for i, flag := range flags {
		for name, list := range to {
			dir, ok := strings.CutPrefix(flag, name)
			if ok && dir == "" && i+1 < len(flags) {
				dir = flags[i+1]
			}
			if ok && dir != "" {
				*list = append(*list, path.Clean(strings.TrimPrefix(dir, "=")))
			}
		}
	}
	return quote, system, after
}
