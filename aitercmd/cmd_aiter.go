package aitercmd

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/internal/upstream"
)

func newAIter(a *app) *cobra.Command {
	cmd := group(&cobra.Command{Use: "aiter", Short: "Read a checkout of AMD's AIter"})
	cmd.AddCommand(newAIterModules(a), newAIterImport(a), newAIterCheck(a))
	return cmd
}

const aiterModulesLong = `List the modules of a checkout of AMD's AIter with their states. CHECKOUT is its folder (default $AITER_CHECKOUT).

in: MODULE   this program has operators that are built from the module's sources
possible     the sources need only HIP and the header libraries that are named
otherwise    the sources also need what is named: torch, Composable Kernel, a generator, assembly code objects

The states follow from AIter's configuration and from the includes of the sources. --verbose prints the file that gives
each reason. OPERATORS is the number of operators that AIter's Python code declares. The command executes nothing of the
checkout.`

func newAIterModules(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "modules [CHECKOUT]", Short: "List AIter's modules, and why some cannot be built", Long: aiterModulesLong,
		Example: "  aiterctl aiter modules /src/aiter\n  aiterctl aiter modules --json",
		Args:    args(cobra.MaximumNArgs(1)),
		RunE:    func(_ *cobra.Command, args []string) error { return a.aiterModules(args) },
	}
}

// aiterModule is an element of the output of aiter modules --json.
type aiterModule struct {
	Name      string        `json:"name"`
	State     string        `json:"state"`    // "in", "possible" or "out"
	Declared  []string      `json:"declared"` // modules of this program that are built from its sources
	Reasons   []aiterReason `json:"reasons"`
	Needs     []string      `json:"needs"`     // header libraries: "rocPRIM"
	Operators []string      `json:"operators"` // in AIter's Python
}

type aiterReason struct {
	What  string `json:"what"`
	Where string `json:"where"`
}

// aiterModules runs the command aiter modules.
func (a *app) aiterModules(args []string) error {
	c, declared, err := a.openCheckout(args)
	if err != nil {
		return err
	}
	defer c.Close()
	list := c.Status(declared)
	if a.json {
		out := []aiterModule{}
		for _, s := range list {
			m := aiterModule{Name: s.Name, State: string(s.State), Declared: nonNil(s.Declared), Reasons: []aiterReason{},
				Needs: nonNil(s.Needs), Operators: []string{}}
			for _, r := range s.Reasons {
				m.Reasons = append(m.Reasons, aiterReason(r))
			}
			for _, op := range s.Operators {
				m.Operators = append(m.Operators, op.Name)
			}
			out = append(out, m)
		}
		return a.writeJSON(out)
	}
	rows := [][]string{{"MODULE", "OPERATORS", "STATE"}}
	counts := map[upstream.State]int{}
	for _, s := range list {
		counts[s.State]++
		rows = append(rows, []string{s.Name, strconv.Itoa(len(s.Operators)), s.Words()})
		for _, r := range s.Reasons {
			if a.verbose {
				rows = append(rows, []string{"", "", "  " + r.String()})
			}
		}
	}
	if err := a.table(rows); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "\n%s: %d in, %d possible, %d need more\n", spelling.Count(len(list), "module"), counts[upstream.In],
		counts[upstream.Possible], counts[upstream.Out])
	return err
}

// openCheckout opens the checkout that an argument or AITER_CHECKOUT names, and the declarations of this program for it. The
// caller closes the checkout.
func (a *app) openCheckout(args []string) (*upstream.Checkout, upstream.Declared, error) {
	dir := cmp.Or(strings.Join(args, ""), a.getenv(settings.CheckoutVariable))
	if dir == "" {
		return nil, upstream.Declared{}, usagef("no checkout of AIter: name its folder, or set %s", settings.CheckoutVariable)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, upstream.Declared{}, &usageError{err}
	}
	d, err := declaredUpstream(dir)
	if err != nil {
		return nil, d, err
	}
	c, err := upstream.Open(dir)
	if as[*upstream.NotACheckoutError](err) {
		err = &usageError{err}
	}
	return c, d, err
}

// declaredUpstream returns the declarations of this program for a checkout of AIter.
func declaredUpstream(dir string) (d upstream.Declared, err error) {
	if d.Files, err = settings.Upstream(); err != nil {
		return d, err
	}
	d.Config, err = opconfig.Load(d.Files, settings.ModuleConfig, opconfig.Options{Env: func(name string) (string, bool) {
		return dir, name == settings.CheckoutVariable
	}})
	if err != nil {
		return d, errors.Join(errors.New("the declarations of AIter's operators in this program"), err)
	}
	return d, nil
}
