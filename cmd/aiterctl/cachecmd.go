package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func newCache(a *app) *cobra.Command {
	cmd := group(&cobra.Command{Use: "cache", Short: "Look into the kernel cache"})
	cmd.AddCommand(
		&cobra.Command{
			Use: "path", Short: "Print the cache folder: the one that builds write to", Args: args(cobra.NoArgs),
			RunE: func(cmd *cobra.Command, _ []string) error { return a.printCachePath(cmd.Context()) },
		},
		&cobra.Command{
			Use: "stats", Short: "Show what the cache holds, and what builds found in it", Args: args(cobra.NoArgs),
			RunE: func(cmd *cobra.Command, _ []string) error { return a.cacheStats(cmd.Context()) },
		},
		newVerify(a),
	)
	return cmd
}

func (a *app) printCachePath(ctx context.Context) error {
	o, err := a.cacheOptions()
	if err != nil {
		return err
	}
	path, err := o.Folder(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(map[string]string{"path": path})
	}
	_, err = fmt.Fprintln(a.out, path)
	return err
}
