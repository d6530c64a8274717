package opconfig_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/opconfig"
)

// withTolerance returns a config whose operator writes out and state.
func withTolerance(tolerance string) string {
	return "[[module.module_a.source]]\npath = 'csrc/a.cpp'\n[[module.module_a.op]]\nname = 'op_a'\n" +
		"schema = '(Tensor(a!) out, Tensor x, Tensor(b!)? state=None) -> ()'\n" + tolerance + "\n"
}

func TestTolerance(t *testing.T) {
	for _, c := range []struct {
		text string
		want map[string]opconfig.Tolerance
	}{
		{"", nil},
		{`tolerance = { state = "exact", out = { rel = 1e-3, abs = 2 } }`, map[string]opconfig.Tolerance{"state": {Exact: true},
			"out": {Rel: 1e-3, Abs: 2}}},
		{"[module.module_a.op.tolerance]\nout.abs = 0.5", map[string]opconfig.Tolerance{"out": {Abs: 0.5}}},
	} {
		_, op, err := load(t, map[string]string{"config/main.toml": withTolerance(c.text)}, nil).Op("op_a")
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(op.Tolerance, c.want) {
			t.Errorf("%s: got %v, want %v", c.text, op.Tolerance, c.want)
		}
	}
}

func TestToleranceMistakes(t *testing.T) {
	for text, want := range map[string]string{
		`tolerance = { ‸oot = "exact" }`: `unknown key "oot" in tolerance of op_a (its keys are the written arguments); did you ` +
			`mean "out"?`,
		`tolerance = { ‸x = "exact" }`: `unknown key "x" in tolerance of op_a (its keys are the written arguments); expected ` +
			`out or state`,
		`tolerance = { out = ‸"exakt" }`:        `unknown tolerance "exakt"; did you mean "exact"?`,
		`tolerance = { out = ‸0.1 }`:            `a tolerance must be "exact" or a table with rel and abs, got a float`,
		`tolerance = { out = { rel = ‸-1 } }`:   `rel is -1; expected a finite number, 0 or more`,
		`tolerance = { out = { abs = ‸inf } }`:  `abs is +Inf; expected a finite number, 0 or more`,
		`tolerance = { out = { abs = ‸"1" } }`:  `abs must be a number, got a string`,
		`tolerance = { out = { ‸rtol = 1.0 } }`: `unknown key "rtol" in a tolerance`,
		`tolerance = ‸"exact"`:                  `must be a table, got a string`,
	} {
		clean, positions := split(withTolerance(text))
		got := mistakesOf(t, clean, nil)
		if len(got) != 1 || !strings.Contains(got[0], "main.toml:"+positions[0]+": ") || !strings.Contains(got[0], want) {
			t.Errorf("%s\n got %q\nwant %s: %s", text, got, positions[0], want)
		}
	}
	silent := strings.ReplaceAll(withTolerance("‸tolerance = { }"), "(a!)", "")
	clean, positions := split(strings.ReplaceAll(silent, "(b!)", ""))
	if got := mistakesOf(t, clean, nil); len(got) != 1 ||
		!strings.Contains(got[0], positions[0]+": op_a has a tolerance, but its schema marks no argument as written") {
		t.Errorf("got %q", got)
	}
}
