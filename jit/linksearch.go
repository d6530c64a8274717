package jit

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/depfile"
)

// A library that appears in a folder where the linker looked in vain would be
// linked in place of the one that it found. GNU ld says where it looked; of
// other linkers it follows from the folders of the flags and of the driver.

// lookedFor are the names that were not there when the linker looked for them
// and read those files. Left out is where the toolchain's own libraries were looked
// for in its own folders: its identity sees what appears there. It names a file
// that is there by now.
func (l *link) lookedFor(read []string, tried depfile.Tries, stage *cache.Stage) (absent []depAbsent, changed string) {
	own := l.ownNames(read)
	folders, libs := librarySearch(l.flags)
	seen := map[string]bool{}
	for _, p := range l.triedInVain(read, tried, folders, libs) {
		dir, name := splitPath(p)
		mine := path.IsAbs(p) && !strings.HasPrefix(p, stage.Path+"/") && (slices.Contains(folders, dir) || !own[stem(name)])
		at := l.real(dir) + "/" + name
		switch {
		case !mine || seen[at]:
		case !l.view.has(dir, name):
			absent = append(absent, depAbsent{dir, name})
		case tried.Vain && opens(at):
			return absent, p
		}
		seen[at] = true
	}
	return absent, ""
}

// triedInVain are the paths under which the linker found nothing, in its own
// words or as linkers do it.
func (l *link) triedInVain(read []string, tried depfile.Tries, folders []string, libs [][]string) []string {
	if tried.Vain {
		return tried.Absent
	}
	found := map[string]bool{}
	for _, p := range read {
		found[path.Clean(p)] = true
	}
	dirs := slices.Concat(folders, l.tc.LibraryDirs)
	var out []string
	for _, names := range libs {
		out = append(out, candidates(dirs, names, found)...)
	}
	return out
}

// candidates are where a library of these names is looked for before it is
// found.
func candidates(dirs, names []string, found map[string]bool) []string {
	var out []string
	for _, dir := range dirs {
		for _, name := range names {
			if found[path.Join(dir, name)] {
				return out
			}
			out = append(out, dir+"/"+name)
		}
	}
	return out
}

// ownNames are the stems of those files that the toolchain's identity holds.
func (l *link) ownNames(read []string) map[string]bool {
	own, names := l.ownFiles(), map[string]bool{}
	for _, p := range read {
		if own[l.real(p)] {
			names[stem(path.Base(p))] = true
		}
	}
	return names
}

// stem is what libm.so and libm.a have in common.
func stem(name string) string { return strings.TrimSuffix(name, path.Ext(name)) }

// splitPath keeps the spelling of the folder: ".." behind a link is not what
// it looks like.
func splitPath(p string) (dir, name string) {
	dir, name = path.Split(p)
	return strings.TrimRight(dir, "/"), name
}

// opens says whether a file can be read. A link into the void cannot.
func opens(p string) bool {
	f, err := os.Open(p)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

// inStage makes the paths of a linker that ran in a stage absolute.
func inStage(paths []string, stage *cache.Stage) []string {
	out := slices.Clone(paths)
	for i, p := range out {
		if !filepath.IsAbs(p) {
			out[i] = filepath.Join(stage.Path, p)
		}
	}
	return out
}

// librarySearch returns the folders that link flags add to the search for
// libraries, in their order, and for each library the names it may have.
func librarySearch(flags []string) (dirs []string, libs [][]string) {
	words := linkerWords(flags)
	for i, w := range words {
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		if dir := optionValue(w, next, "-L", "--library-path"); path.IsAbs(dir) {
			dirs = append(dirs, strings.TrimRight(dir, "/"))
		}
		switch name := optionValue(w, next, "-l", "--library"); {
		case strings.HasPrefix(name, ":"):
			libs = append(libs, []string{name[1:]})
		case name != "":
			libs = append(libs, []string{"lib" + name + ".so", "lib" + name + ".a"})
		}
	}
	return dirs, libs
}

// linkerWords are the flags without what passes them through to the linker.
func linkerWords(flags []string) []string {
	var words []string
	for _, f := range flags {
		if inner, ok := strings.CutPrefix(f, "-Wl,"); ok {
			words = append(words, strings.Split(inner, ",")...)
		} else if inner, ok := strings.CutPrefix(f, "-Xlinker="); ok {
			words = append(words, strings.Split(inner, ",")...)
		} else if f != "-Xlinker" {
			words = append(words, f)
		}
	}
	return words
}

// optionValue is the value that a word gives to an option, by itself or with
// the next word; "" when it is another's.
func optionValue(word, next, short, long string) string {
	if word == short || word == long {
		return next
	}
	if value, ok := strings.CutPrefix(word, long+"="); ok {
		return value
	}
	if strings.HasPrefix(word, "--") {
		return ""
	}
	value, _ := strings.CutPrefix(word, short)
	if value == word {
		return ""
	}
	return value
}
