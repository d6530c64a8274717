package target

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// KFDFolder is the folder in which the AMD kernel driver describes its devices.
const KFDFolder = "/sys/class/kfd/kfd/topology/nodes"

// FromKFD reads the AMD GPUs from the kernel driver's topology, without loading a
// library or starting a process. fsys is rooted at [KFDFolder]. It returns one Target for
// each GPU, in node order; equal GPUs repeat. It skips nodes without a GPU, and nodes
// that this process may not read, as in a container without access to all GPUs.
//
// The topology does not contain the features of a GPU, so the targets state none.
// Without an AMD driver the error wraps fs.ErrNotExist.
func FromKFD(fsys fs.FS) ([]Target, error) {
	nodes, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("reading the kfd topology: %w", err)
	}
	var gpus []Target
	for _, i := range nodeNumbers(nodes) {
		t, err := kfdNode(fsys, strconv.Itoa(i))
		if err != nil {
			return nil, fmt.Errorf("kfd node %d: %w", i, err)
		}
		if !t.IsZero() {
			gpus = append(gpus, t)
		}
	}
	return gpus, nil
}

// nodeNumbers returns the node numbers in numerical order.
func nodeNumbers(entries []fs.DirEntry) []int {
	var list []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && strconv.Itoa(n) == e.Name() {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list
}

// kfdNode returns the target of a node's GPU. It returns the zero Target for a node that is not a GPU
// or that this process may not read.
func kfdNode(fsys fs.FS, node string) (Target, error) {
	text, err := fs.ReadFile(fsys, path.Join(node, "properties"))
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return Target{}, nil
	}
	if err != nil {
		return Target{}, err
	}
	v, err := gfxVersionIn(text)
	if err != nil || v == 0 {
		return Target{}, err
	}
	return FromGFXVersion(v)
}

// gfxVersionIn returns the value of gfx_target_version in lines of the form "name value", 0 if it is
// absent.
func gfxVersionIn(text []byte) (uint32, error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		value, found := strings.CutPrefix(lines.Text(), "gfx_target_version ")
		if !found {
			continue
		}
		v, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
		if err != nil {
			return 0, fmt.Errorf("gfx_target_version: %w", err)
		}
		return uint32(v), nil
	}
	return 0, lines.Err()
}

// FromGFXVersion returns the target for a version number of the kernel driver, major*10000 +
// minor*100 + stepping: 90402 is gfx942, 90010 is gfx90a, 110000 is gfx1100. It
// accepts GPUs that Known does not list. The error is a *SyntaxError.
func FromGFXVersion(v uint32) (Target, error) {
	major, minor, step := v/10000, v/100%100, v%100
	arch := fmt.Sprintf("gfx%d%x%x", major, minor, step)
	if minor > 15 || step > 15 || !wellFormedGFX(arch) {
		return Target{}, &SyntaxError{
			Input:  strconv.FormatUint(uint64(v), 10),
			Reason: "not a gfx_target_version, which is major*10000 + minor*100 + stepping as in 90402",
		}
	}
	return Target{vendor: HIP, arch: arch}, nil
}
