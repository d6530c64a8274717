package toolchain

import (
	"fmt"
	"path"
	"path/filepath"

	"github.com/aiter-go/aiter/jit/target"
)

// common adds files that the answers do not name: the driver inside a root, the scripts in the folder of a HIP driver, the
// objects and libraries that nvcc's host compiler links, and those that options of GCC link.
func (c *collector) common(include []string) error {
	tc := c.s.tc
	dirs := append(filepath.SplitList(defaultPath), "/opt/rocm/bin", "/usr/local/cuda/bin")
	if tc.Root == "" {
		real, err := filepath.EvalSymlinks(tc.Compiler)
		if err != nil {
			return fmt.Errorf("identify the compiler: %w", err)
		}
		dirs = []string{filepath.Dir(tc.Compiler), filepath.Dir(real)}
	}
	var names []string
	switch tc.Vendor {
	case target.HIP:
		names = []string{"hipcc", "hipcc.pl", "hipcc.bin", "hipconfig", "hipconfig.pl", "hipconfig.bin", "hipvars.pm"}
	case target.CUDA:
		names = []string{"nvcc"}
		if err := c.generatedCodeHeaders(include); err != nil {
			return err
		}
		if err := c.hostLink(); err != nil {
			return err
		}
	default:
		for _, name := range []string{"gcc_eh", "pthread"} { // of -static-libgcc and -pthread
			if err := c.library(name, c.libs); err != nil {
				return err
			}
		}
	}
	for _, dir := range dirs {
		for _, name := range names {
			if err := c.file(path.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// hostLink adds the files that GCC adds to a link; nvcc's dry run does not show them.
func (c *collector) hostLink() error {
	for _, name := range []string{"crti.o", "crtbeginS.o", "crtendS.o", "crtn.o"} {
		for _, dir := range c.libs {
			if err := c.file(path.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{"stdc++", "m", "gcc_s", "gcc", "c"} {
		if err := c.library(name, c.libs); err != nil {
			return err
		}
	}
	for _, name := range []string{"collect2", "ld"} {
		if err := c.program(name); err != nil {
			return err
		}
	}
	return nil
}

// generatedCodeHeaders adds the headers that nvcc's generated code includes, because no depfile lists them.
func (c *collector) generatedCodeHeaders(include []string) error {
	for _, dir := range include {
		for _, name := range []string{"crt/host_runtime.h", "crt/storage_class.h"} {
			if err := c.file(path.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// nvcc adds the files in the driver's own folder and the device library, which nvcc's settings name.
func (c *collector) nvcc(a answer) error {
	if here := a.variables["_HERE_"]; here != "" {
		for _, name := range []string{"nvcc", "nvcc.profile"} {
			if err := c.file(path.Join(here, name)); err != nil {
				return err
			}
		}
	}
	dir := a.variables["NVVMIR_LIBRARY_DIR"]
	if dir == "" {
		return nil
	}
	c.watch(dir)
	for _, p := range c.matching(dir, "*.bc") {
		if err := c.file(p); err != nil {
			return err
		}
	}
	return nil
}
