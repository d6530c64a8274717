package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// newHelp is cobra's help command, except that an unknown topic is an error.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show help for a command or topic",
		RunE: func(_ *cobra.Command, topic []string) error {
			cmd, rest, err := root.Find(topic)
			if err != nil || len(rest) > 0 {
				return usagef("unknown help topic %q", strings.Join(topic, " "))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var names []cobra.Completion
			for _, c := range root.Commands() {
				names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
