package opconfig

import (
	"slices"
	"strings"
	"unicode"
)

// allowedVariables returns the variables that ${NAME} may name in addition to AITER_*. The list is short,
// so that a configuration cannot depend on hidden settings of a machine.
func allowedVariables() []string {
	return []string{"CK_DIR", "CUDA_HOME", "CUDA_PATH", "ROCM_HOME", "ROCM_PATH"}
}

func isAllowedVariable(name string) bool {
	return strings.HasPrefix(name, "AITER_") || slices.Contains(allowedVariables(), name)
}

func (c *Config) addVariable(name string) {
	if !slices.Contains(c.Variables, name) {
		c.Variables = append(c.Variables, name)
	}
}

// expand replaces ${NAME} and ${NAME:-default} in a string; "$$" is a dollar sign.
// As in a shell, the default also replaces a variable that is set but empty.
// The result is never split into several arguments.
func (d *decoder) expand(s string, n *node) (string, bool) {
	var b strings.Builder
	rest := s
	for {
		before, after, found := strings.Cut(rest, "$")
		b.WriteString(before)
		if !found {
			return b.String(), true
		}
		dollar := len(s) - len(after) - 1
		at := func() int { return rawOffset(d.doc.src, n.at, dollar) } // computed only to report a mistake
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			rest = after[1:]
			continue
		case !strings.HasPrefix(after, "{"):
			d.fail(at(), "a single $; write ${NAME} for a variable or $$ for a dollar sign")
			return "", false
		}
		inner, tail, closed := strings.Cut(after[1:], "}")
		if !closed {
			d.fail(at(), "${ without }")
			return "", false
		}
		value, ok := d.variable(inner, at)
		if !ok {
			return "", false
		}
		b.WriteString(value)
		rest = tail
	}
}

// variable returns the value of the variable that the text between the braces names.
func (d *decoder) variable(inner string, at func() int) (string, bool) {
	name, fallback, hasDefault := strings.Cut(inner, ":-")
	if !isIdentifier(name) {
		d.fail(at(), "bad variable %q; write ${NAME} or ${NAME:-default}", "${"+inner+"}")
		return "", false
	}
	if !isAllowedVariable(name) {
		allowed := append([]string{"AITER_*"}, allowedVariables()...)
		d.unknown(at(), "variable "+name, name, allowed)
		return "", false
	}
	d.cfg.addVariable(name)
	var value string
	set := false
	if d.env != nil {
		value, set = d.env(name)
	}
	if hasDefault && value == "" {
		return fallback, true
	}
	if !set {
		d.fail(at(), "variable %s is not set; set it or write ${%s:-default}", name, name)
	}
	if strings.ContainsFunc(value, unicode.IsControl) {
		return "", d.plain(value, at(), "variable "+name)
	}
	if d.expanded += len(value); d.expanded > maxExpanded {
		d.fail(at(), "variables expand to too much text: expected at most %d bytes in all files", maxExpanded)
		return "", false
	}
	return value, set
}
