package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit"
)

// commands shows the compiler runs of a build, or writes them for editors.
func (b *buildPlan) commands(ctx context.Context, f *buildFlags) error {
	list, err := b.manager.Commands(ctx, b.requests()...)
	if err != nil {
		return err
	}
	if f.compileCommands != "" {
		if err := writeDatabase(f.compileCommands, list); err != nil {
			return err
		}
	}
	if !f.dryRun {
		return nil
	}
	if b.app.json {
		return b.app.writeJSON(map[string][]jit.Command{"commands": nonNil(list)})
	}
	return b.app.printCommands(list)
}

// printCommands lists what a build would do; the commands of what the cache
// has are left out, unless --verbose.
func (a *app) printCommands(list []jit.Command) error {
	for _, c := range list {
		if c.Status == jit.Hit && !a.verbose {
			fmt.Fprintf(a.out, "hit      %s for %s\n", c.Unit(), unitTarget(c.Target, c.Values))
			continue
		}
		verb := "compile "
		if c.Status == jit.Hit {
			verb = "hit     "
		}
		fmt.Fprintf(a.out, "%s %s for %s: %s\n         cd %s && %s\n", verb, c.Unit(), unitTarget(c.Target, c.Values), c.Reason, jit.Quote([]string{c.Directory}), jit.Quote(c.Arguments))
	}
	return nil
}

// databaseEntry is an entry of Clang's JSON compilation database.
type databaseEntry struct {
	Directory string   `json:"directory"`
	File      string   `json:"file"`
	Arguments []string `json:"arguments"`
}

func writeDatabase(path string, list []jit.Command) error {
	entries := []databaseEntry{}
	for _, c := range list {
		if c.Pass == toolchain.Device {
			continue // editors look at a file in one way: the host's
		}
		entries = append(entries, databaseEntry{c.Directory, c.File, c.Arguments})
	}
	data, err := json.MarshalIndent(entries, "", "  ")
	if err != nil {
		return fmt.Errorf("compilation database: %w", err)
	}
	return writeWhole(path, func(f *os.File) error {
		_, err := f.Write(append(data, '\n'))
		return err
	})
}

// writeWhole writes a file whole or not at all: into a temporary one beside
// it, then renamed. A name that is no regular file, such as /dev/stdout, is
// written to as it is.
func writeWhole(path string, write func(*os.File) error) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return writePlainly(path, write)
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

func writePlainly(path string, write func(*os.File) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// nonNil makes JSON's [] of an empty list.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
