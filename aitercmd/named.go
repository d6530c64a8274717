package aitercmd

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// aiterctl is the program's name in the texts of this package.
const aiterctl = "aiterctl"

// rename replaces aiterctl by the program's name in the texts of the commands, and prepares named to do so in other texts.
func (a *app) rename(root *cobra.Command) {
	if a.program.Name == aiterctl {
		return
	}
	words := []string{"--", "COMMAND", "OP"}
	for _, c := range append(root.Commands(), &cobra.Command{Use: "help"}) {
		words = append(words, regexp.QuoteMeta(c.Name())+`\b`)
	}
	a.commands = regexp.MustCompile(fmt.Sprintf(`(^|[^\w/.-])%s (%s)`, aiterctl, strings.Join(words, "|")))
	a.renameTexts(root)
}

func (a *app) renameTexts(cmd *cobra.Command) {
	for _, text := range []*string{&cmd.Short, &cmd.Long, &cmd.Example} {
		*text = a.named(*text)
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { f.Usage = a.named(f.Usage) })
	for _, c := range cmd.Commands() {
		a.renameTexts(c)
	}
}

// named returns a text with the program's name in place of aiterctl where it names commands.
func (a *app) named(text string) string {
	if a.commands == nil {
		return text
	}
	return a.commands.ReplaceAllString(text, "${1}"+strings.ReplaceAll(a.program.Name, "$", "$$")+" ${2}")
}
