package aitercmd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/aiter-go/aiter/internal/shell"
	"github.com/aiter-go/aiter/jit"
)

// commands prints the compiler commands of a build, or writes them to a compilation
// database.
func (b *buildRun) commands(ctx context.Context, f *buildCommandFlags) error {
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

// printCommands lists the commands of a build. Without --verbose it leaves out the
// commands of units in the cache.
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
		fmt.Fprintf(a.out, "%s %s for %s: %s\n         cd %s && %s\n",
			verb, c.Unit(), unitTarget(c.Target, c.Values), c.Reason, shell.Quote(c.Directory), shell.Join(c.Arguments))
	}
	return nil
}

// databaseEntry is an entry of Clang's JSON compilation database.
type databaseEntry struct {
	Directory string   `json:"directory"`
	File      string   `json:"file"`
	Arguments []string `json:"arguments"`
}

// writeDatabase writes a compilation database.
func writeDatabase(path string, list []jit.Command) error {
	entries := []databaseEntry{}
	for _, c := range list {
		if c.Pass.MakesDeviceCode() {
			continue // editors use one command for each file: that of the host pass
		}
		entries = append(entries, databaseEntry{c.Directory, c.File, c.Arguments})
	}
	data, err := json.MarshalIndent(entries, "", "  ")
	if err != nil {
		return fmt.Errorf("compilation database: %w", err)
	}
	return writeFile(path, func(f *os.File) error {
		_, err := f.Write(append(data, '\n'))
		return err
	})
}
