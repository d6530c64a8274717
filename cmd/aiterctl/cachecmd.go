package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newCache(a *app) *cobra.Command {
	cmd := group(&cobra.Command{Use: "cache", Short: "Look into the kernel cache"})
	cmd.AddCommand(
		&cobra.Command{
			Use: "path", Short: "Print the cache folder", Args: args(cobra.NoArgs),
			RunE: func(*cobra.Command, []string) error { return a.printCachePath() },
		},
		&cobra.Command{
			Use: "stats", Short: "Show what the cache holds, and what builds found in it", Args: args(cobra.NoArgs),
			RunE: func(cmd *cobra.Command, _ []string) error { return a.cacheStats(cmd.Context()) },
		},
		newVerify(a),
	)
	return cmd
}

func (a *app) printCachePath() error {
	path, err := a.cacheFolder()
	if err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(map[string]string{"path": path})
	}
	_, err = fmt.Fprintln(a.out, path)
	return err
}
