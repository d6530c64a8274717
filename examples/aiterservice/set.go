package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/aiter-go/aiter/aitercmd"
)

// aiterModule is a module of a checkout of AIter, as `aiterctl aiter modules --json` prints it.
type aiterModule struct {
	Name      string
	Declared  []string // modules of the registry that are built from its sources
	Reasons   []struct{ What string }
	Operators []string // in AIter's Python
}

// command runs a command of aiterctl in this process, and decodes its JSON into result.
func command(ctx context.Context, result any, messages io.Writer, args ...string) error {
	var out bytes.Buffer
	program := aitercmd.Program{Name: "aiterservice"}
	if code := program.Run(ctx, append(args, "--json", "--quiet"), nil, &out, messages); code != 0 {
		return fmt.Errorf("aiterctl %s: exit code %d", args[0], code)
	}
	return json.Unmarshal(out.Bytes(), result)
}

// checkoutModules lists the modules of the checkout that AITER_CHECKOUT names.
func checkoutModules(ctx context.Context, messages io.Writer) (list []aiterModule, err error) {
	if os.Getenv("AITER_CHECKOUT") == "" {
		return nil, errors.New("AITER_CHECKOUT is not set; expected the absolute path of a checkout of github.com/ROCm/aiter")
	}
	return list, command(ctx, &list, messages, "aiter", "modules")
}

// library is a module's code for a target.
type library struct {
	Module, Target string
	Artifact       string // path in the cache
	size           int64  // bytes
}

// set is a prebuilt set.
type set struct {
	libraries []library
	elapsed   time.Duration // of the build
}

// build builds the modules into the cache, and writes a prebuilt set to a folder.
func build(ctx context.Context, modules []string, arch, folder string, messages io.Writer) (set, error) {
	var built struct{ Modules []library }
	start := time.Now()
	err := command(ctx, &built, messages, slices.Concat([]string{"build"}, modules, []string{"--arch", arch, "--output", folder})...)
	s := set{libraries: built.Modules, elapsed: time.Since(start)}
	if err != nil {
		return s, err
	}
	for i := range s.libraries {
		info, err := os.Stat(s.libraries[i].Artifact)
		if err != nil {
			return s, err
		}
		s.libraries[i].size = info.Size()
	}
	return s, nil
}

// print prints the sizes, a row for each module and a column for each target.
func (s set) print(out io.Writer) error {
	var modules, targets []string
	sizes := map[[2]string]int64{}
	total := int64(0)
	for _, l := range s.libraries {
		if !slices.Contains(modules, l.Module) {
			modules = append(modules, l.Module)
		}
		if !slices.Contains(targets, l.Target) {
			targets = append(targets, l.Target)
		}
		sizes[[2]string{l.Module, l.Target}] = l.size
		total += l.size
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "\nMODULE")
	for _, t := range targets {
		fmt.Fprintf(w, "\t%s, KiB", t)
	}
	for _, m := range modules {
		fmt.Fprintf(w, "\n%s", m)
		for _, t := range targets {
			fmt.Fprintf(w, "\t%d", sizes[[2]string{m, t}]>>10)
		}
	}
	fmt.Fprintf(w, "\n\nlibraries: %d, %.1f MiB, built in %.1f s\n", len(s.libraries), float64(total)/(1<<20), s.elapsed.Seconds())
	return w.Flush()
}
