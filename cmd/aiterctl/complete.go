package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/jit/target"
)

// moduleNames completes the names of modules.
func (a *app) moduleNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.names(true, false), cobra.ShellCompDirectiveNoFileComp
}

// opNames completes the names of operators.
func (a *app) opNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.names(false, true), cobra.ShellCompDirectiveNoFileComp
}

// allNames completes the names of modules and operators.
func (a *app) allNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.names(true, true), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) names(modules, ops bool) []cobra.Completion {
	cfg, err := a.loadConfig()
	if err != nil {
		return nil
	}
	var names []cobra.Completion
	for _, m := range cfg.Modules {
		if modules {
			names = append(names, cobra.CompletionWithDesc(m.Name, m.Doc))
		}
		for _, op := range m.Ops {
			if ops {
				names = append(names, cobra.CompletionWithDesc(op.Name, op.Doc))
			}
		}
	}
	return names
}

// axisValues completes the values of axes: "dtype=float16".
func (a *app) axisValues(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	cfg, err := a.loadConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []cobra.Completion
	for _, m := range cfg.Modules {
		for _, axis := range m.Axes {
			for _, v := range axis.Values {
				if word := axis.Name + "=" + v; !slices.Contains(words, word) {
					words = append(words, word)
				}
			}
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completeArch completes --arch.
func (a *app) completeArch(cmd *cobra.Command) {
	a.completeFlag(cmd, "arch", append([]string{native}, target.Known()...)...)
}

// completeFlag completes a flag from a list of words.
func (a *app) completeFlag(cmd *cobra.Command, flag string, words ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		fmt.Fprintf(a.err, "aiterctl: completion of --%s: %v\n", flag, err)
	}
}
