package aitercmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/aiter-go/aiter/internal/report"
	optests "github.com/aiter-go/aiter/op_tests"
)

// paramFlag is a parameter of the operator's cases, and its flag.
type paramFlag struct {
	optests.Param
	given func() []any // the flag's values; without a flag all choices, or none
}

// paramsOf returns the parameters of an operator's cases, without flags.
func paramsOf(op optests.Declaration) []paramFlag {
	var list []paramFlag
	for _, p := range op.Params() {
		list = append(list, paramFlag{p, listed(&p.Choices)})
	}
	return list
}

// settable returns the parameters that flags set: none for an operator that lists its cases.
func settable(op optests.Declaration) []paramFlag {
	if op.Listed() {
		return nil
	}
	return paramsOf(op)
}

// addLists adds flags that take several values each.
func addLists(fl *pflag.FlagSet, params []paramFlag, usual optests.Case) {
	for i := range params {
		p := &params[i]
		list, usage := p.Usage+": a comma-separated `LIST`", ""
		if p.Kind == optests.Int || p.Kind == optests.Float {
			usage = fmt.Sprintf(" (default %v)", p.usual(usual))
		}
		switch p.Kind {
		case optests.Size, optests.Int:
			p.given = emptyList(fl, p.Name, fl.Int64Slice(p.Name, nil, list+usage))
		case optests.Float:
			p.given = emptyList(fl, p.Name, fl.Float64Slice(p.Name, nil, list+usage))
		case optests.Choice:
			p.given = listed(fl.StringSlice(p.Name, p.Choices, p.Usage))
		case optests.Bool:
			p.addBool(fl)
		}
	}
}

// addSingle adds flags that take one value each, by default that of the usual case.
func addSingle(fl *pflag.FlagSet, params []paramFlag, usual optests.Case) {
	for i := range params {
		p := &params[i]
		switch v := p.Value(usual).(type) {
		case int64:
			p.given = single(fl.Int64(p.Name, v, p.Usage+p.defaultNote()))
		case float64:
			p.given = single(fl.Float64(p.Name, v, p.Usage))
		case string:
			p.given = single(fl.String(p.Name, v, p.Usage+": "+strings.Join(p.Choices, " or ")))
		case bool:
			p.addBool(fl)
		}
	}
}

// usual returns the default in words if the parameter has one, else its value in the usual case c.
func (p *paramFlag) usual(c optests.Case) any {
	if p.Default != "" {
		return p.Default
	}
	return p.Value(c)
}

// defaultNote returns the default for the help, which shows no default of 0 by itself.
func (p *paramFlag) defaultNote() string {
	if p.Default == "" {
		return ""
	}
	return " (default " + p.Default + ")"
}

// addBool adds a flag without a value.
func (p *paramFlag) addBool(fl *pflag.FlagSet) {
	on := fl.Bool(p.Name, false, p.Usage)
	p.given = func() []any {
		if *on {
			return []any{true}
		}
		return nil
	}
}

// emptyList does the same as listed, and removes the default [] from the help.
func emptyList[T any](fl *pflag.FlagSet, name string, list *[]T) func() []any {
	fl.Lookup(name).DefValue = ""
	return listed(list)
}

// listed returns a function that returns the current values of a list flag.
func listed[T any](list *[]T) func() []any {
	return func() []any {
		var values []any
		for _, v := range *list {
			values = append(values, trimmed(v))
		}
		return values
	}
}

// single returns a function that returns the current value of a flag, as a list.
func single[T any](v *T) func() []any { return func() []any { return []any{trimmed(*v)} } }

// trimmed removes the spaces around a word.
func trimmed(v any) any {
	if word, ok := v.(string); ok {
		return strings.TrimSpace(word)
	}
	return v
}

// ofKind returns the parameters that have one of the kinds.
func ofKind(params []paramFlag, kinds ...optests.Kind) []paramFlag {
	return slices.DeleteFunc(slices.Clone(params), func(p paramFlag) bool { return !slices.Contains(kinds, p.Kind) })
}

// combine returns every configuration with every given value of every parameter; the values of the last vary fastest.
func combine(list []optests.Config, params []paramFlag) ([]optests.Config, error) {
	for _, p := range params {
		values := p.given()
		if len(values) == 0 {
			continue
		}
		var next []optests.Config
		for _, c := range list {
			for _, v := range values {
				changed, err := p.Set(c.Case, v)
				if err != nil {
					return nil, err
				}
				next = append(next, optests.Config{Name: c.Name, Case: changed})
			}
		}
		list = next
	}
	return list, nil
}

// flagNames lists the flags of parameters: "--batch, --dim and --seqlen".
func flagNames(params []paramFlag) string {
	var names []string
	for _, p := range params {
		names = append(names, "--"+p.Name)
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// numberParams and optionParams return the parameters whose columns are before and after the element type in the tables
// of test.
func numberParams(op optests.Declaration) []paramFlag {
	return ofKind(paramsOf(op), optests.Size, optests.Int, optests.Float)
}
func optionParams(op optests.Declaration) []paramFlag {
	return ofKind(paramsOf(op), optests.Choice, optests.Bool)
}

// headings returns the columns' names in tables.
func headings(params []paramFlag) []string {
	var names []string
	for _, p := range params {
		names = append(names, strings.ToUpper(p.Column))
	}
	return names
}

// recordParams returns the parameters in the order of JSON, CSV and the table of bench.
func recordParams(op optests.Declaration) []paramFlag {
	params := paramsOf(op)
	return slices.Concat(ofKind(params, optests.Choice), numberParams(op), ofKind(params, optests.Bool))
}

// caseValues returns the columns of a case: of a measurement, or of a test.
func caseValues(op optests.Declaration, c optests.Case, timed bool) report.Values {
	var values report.Values
	for _, p := range recordParams(op) {
		if v := p.Cell(c); v != nil && (!timed || !p.Untimed) {
			values = append(values, report.Value{Name: p.Column, Value: v})
		}
	}
	return values
}

// reportColumns describes the parameters to the page of bench.
func reportColumns(op optests.Declaration) []report.Column {
	var columns []report.Column
	for _, p := range recordParams(op) {
		c := report.Column{Name: p.Column, Title: p.Title, Role: report.Panel}
		switch p.Kind {
		case optests.Size:
			c.Role = report.Size
		case optests.Choice:
			c.Role, c.Choices = report.Line, p.Choices
		}
		columns = append(columns, c)
	}
	return columns
}

// cellText returns a value in a table, "-" for none.
func cellText(v any) string {
	if v == nil {
		return "-"
	}
	if on, ok := v.(bool); ok {
		return yesNo(on)
	}
	return fmt.Sprint(v)
}
