package main

import (
	"slices"
	"strings"
)

// checkLineBreaks returns an error for arguments and variables with a line break. A line break
// in a path would begin a line of the output that looks like the program's own, and
// [visible] cannot tell the two apart.
func checkLineBreaks(args, environ []string) error {
	for _, arg := range args {
		if strings.Contains(arg, "\n") {
			return usagef("the argument %q has a line break; expected one line (rename the file or folder)", arg)
		}
	}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if strings.Contains(value, "\n") && readsVariable(name) {
			return usagef("the variable %s has a line break: %q; expected one line", name, value)
		}
	}
	return nil
}

// readsVariable reports whether the program or its libraries read a path, a name or a list from
// the variable.
func readsVariable(name string) bool {
	return strings.HasPrefix(name, "AITER_") || slices.Contains([]string{
		"GPU_ARCHS", "MAX_JOBS", "HIPCC", "ROCM_PATH", "ROCM_HOME", "NVCC", "CUDA_HOME", "CUDA_PATH", "CUDA_DRIVER_PATH", "CXX", "CK_DIR",
		"HOME", "XDG_CACHE_HOME", "TMPDIR", "PATH", "PWD", "LD_LIBRARY_PATH",
	}, name)
}
