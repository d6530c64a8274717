package settings

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit/target"
)

// EnvironmentError reports an environment variable with an invalid value.
type EnvironmentError struct {
	Name, Value string
	Err         error // the cause: what was expected
}

func (e *EnvironmentError) Error() string { return fmt.Sprintf("%s is %q: %v", e.Name, e.Value, e.Err) }

// Unwrap returns the cause.
func (e *EnvironmentError) Unwrap() error { return e.Err }

// Contradiction returns an *EnvironmentError for a switch that contradicts another
// setting. The switch may have been set by a field instead of its variable.
func Contradiction(name string, getenv func(string) string, err error) error {
	return &EnvironmentError{name, cmp.Or(getenv(name), "1"), err}
}

// CacheDir returns the folder of the kernel cache as an absolute path: dir, else
// AITER_JIT_DIR, else aiter/jit below XDG_CACHE_HOME or $HOME/.cache. The folder
// need not exist. The error is an *EnvironmentError if none of them is set.
func CacheDir(dir string, getenv func(string) string) (string, error) {
	if dir = cmp.Or(dir, getenv("AITER_JIT_DIR")); dir != "" {
		return filepath.Abs(dir)
	}
	if base := getenv("XDG_CACHE_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "aiter", "jit"), nil
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".cache", "aiter", "jit"), nil
	}
	return "", &EnvironmentError{Name: "AITER_JIT_DIR", Err: errNoCacheDir}
}

var errNoCacheDir = errors.New("no folder for the kernel cache: " +
	"XDG_CACHE_HOME and HOME are also unset, or are not absolute paths; set one of these variables")

// Switch reads a variable that is on or off. An unset variable is off. Another word is
// an *EnvironmentError, so that a misspelled "off" does not count as on.
func Switch(name string, getenv func(string) string) (bool, error) {
	v := getenv(name)
	switch strings.ToLower(strings.TrimSpace(v)) {
	case "1", "true", "yes", "on":
		return true, nil
	case "", "0", "false", "no", "off":
		return false, nil
	}
	return false, &EnvironmentError{name, v, errSwitch}
}

var errSwitch = errors.New("expected 1, true, yes or on, else 0, false, no, off or nothing")

// readSwitch sets a field from its variable, unless the field is true already.
func readSwitch(field *bool, name string, getenv func(string) string) (err error) {
	if !*field {
		*field, err = Switch(name, getenv)
	}
	return err
}

// readJobs sets the number of compilers that run at a time from MAX_JOBS, unless it is set already.
func readJobs(jobs *int, getenv func(string) string) error {
	v := getenv("MAX_JOBS")
	if v == "" || *jobs != 0 {
		return nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		return &EnvironmentError{"MAX_JOBS", v, errors.New("expected a number of compilers, 1 or more")}
	}
	*jobs = n
	return nil
}

// SplitPath splits a list of folders at the colons, as in AITER_JIT_PATH.
func SplitPath(list string) []string {
	var dirs []string
	for _, dir := range filepath.SplitList(list) {
		if dir != "" {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// ListItems splits a list of targets, as in GPU_ARCHS and --arch, at commas and
// semicolons.
func ListItems(list string) []string {
	var items []string
	for _, item := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ';' }) {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// PreferredTargets reads GPU_ARCHS without the word native, which states no preference.
// The error is an *EnvironmentError.
func PreferredTargets(getenv func(string) string) ([]target.Target, error) {
	items := slices.DeleteFunc(ListItems(getenv("GPU_ARCHS")), func(item string) bool { return item == "native" })
	if len(items) == 0 {
		return nil, nil
	}
	list := strings.Join(items, ",")
	targets, err := target.ParseList(list)
	if err != nil {
		return nil, &EnvironmentError{"GPU_ARCHS", list, err}
	}
	return targets, nil
}

// Limits fills fields that are 0 from AITER_JIT_MAX_SIZE, AITER_JIT_MAX_AGE and
// AITER_JIT_MAX_COUNT. If the variable is unset, it uses the limit of [cache.DefaultLimits].
// The variable "0" and a negative field mean no limit; in the result it is 0. The error joins an
// *EnvironmentError for each variable with an invalid value.
func Limits(l cache.Limits, getenv func(string) string) (cache.Limits, error) {
	preset := cache.DefaultLimits()
	size, errS := limit(l.Size, getenv, "AITER_JIT_MAX_SIZE", preset.Size, cache.ParseSize)
	age, errA := limit(l.Age, getenv, "AITER_JIT_MAX_AGE", preset.Age, cache.ParseAge)
	count, errC := limit(l.Count, getenv, "AITER_JIT_MAX_COUNT", preset.Count, parseCount)
	return cache.Limits{Size: size, Age: age, Count: count}, errors.Join(errS, errA, errC)
}

// limit returns one limit; 0 means none. given is the field, preset the default.
func limit[N int | int64 | time.Duration](
	given N, getenv func(string) string, name string, preset N, parse func(string) (N, error),
) (N, error) {
	v := strings.TrimSpace(getenv(name))
	switch {
	case given < 0 || given == 0 && v == "0":
		return 0, nil
	case given > 0:
		return given, nil
	case v == "":
		return preset, nil
	}
	n, err := parse(v)
	if err != nil {
		return 0, &EnvironmentError{name, v, err}
	}
	return n, nil
}

// parseCount parses a number of artifacts.
func parseCount(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, &cache.LimitError{What: "number", Value: s, Want: "a number of artifacts above 0"}
	}
	return n, nil
}
