package opconfig_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit/target"
)

func TestLaunchParams(t *testing.T) {
	text := withTolerance(`tune.tile = { values = [64, 16], targets = ["cpu", "gfx9*"], doc = "a tile" }
tune.mode = { values = [0, -1] }`)
	cfg, err := opconfig.Load(tree(map[string]string{"config/main.toml": text}), "config/main.toml", opconfig.Options{Env: env(nil)})
	if err != nil {
		t.Fatal(err)
	}
	_, op, err := cfg.Op("op_a")
	if err != nil {
		t.Fatal(err)
	}
	tile := opconfig.LaunchParam{Name: "tile", Doc: "a tile", Values: []int64{64, 16}, Targets: []string{"cpu", "gfx9*"}}
	mode := opconfig.LaunchParam{Name: "mode", Values: []int64{0, -1}}
	for arch, want := range map[string][]opconfig.LaunchParam{"cpu": {tile, mode}, "gfx942": {tile, mode}, "sm_90": {mode}} {
		target, err := target.Parse(arch)
		if err != nil {
			t.Fatal(err)
		}
		if got := op.LaunchParams(target); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", arch, got, want)
		}
	}
	for _, c := range []struct {
		arch, name string
		value      int64
		want       string
	}{
		{"cpu", "tile", 64, ""},
		{"cpu", "tile", 65, "launch parameter tile is 65; expected one of [64 16]"},
		{"sm_90", "tile", 64, `no launch parameter "tile" on sm_90; expected mode`},
	} {
		target, err := target.Parse(c.arch)
		if err != nil {
			t.Fatal(err)
		}
		err = op.CheckLaunchParam(target, c.name, c.value)
		var unknown *opconfig.UnknownParamError
		if (err != nil) != errors.As(err, &unknown) || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s=%d: %v, want %q", c.arch, c.name, c.value, err, c.want)
		}
	}
}

func TestLaunchParamMistakes(t *testing.T) {
	for text, want := range map[string]string{
		`tune = ‸3`:                                        `tune must be a table of launch parameters, got an integer`,
		`tune.‸tile = { doc = "x" }`:                       `tune.tile has no "values"; it is required`,
		`tune.tile = { values = ‸[] }`:                     `the values of tune.tile must be an array of integers that is not empty`,
		`tune.tile = { values = [1, ‸1.5] }`:               `a value of tune.tile must be an integer, got a float`,
		`tune.tile = { values = [1, 2, ‸1] }`:              `value 1 is listed twice`,
		`tune.tile = { values = [1], ‸value = 2 }`:         `unknown key "value" in tune.tile; did you mean "values"?`,
		`tune.‸"a tile" = { values = [1] }`:                `bad name of a launch parameter "a tile"`,
		`tune.tile = { values = [1], targets = [‸"gpu"] }`: `"gpu"`,
		"‸tune = { " + manyParams(9, 1) + " }":             `op_a has 9 launch parameters; expected at most 8`,
		"‸tune = { " + manyParams(4, 5) + " }":             `too many combinations of launch parameters`,
	} {
		clean, positions := split(withTolerance(text))
		got := mistakesOf(t, clean, nil)
		if len(got) != 1 || !strings.Contains(got[0], want) || !strings.Contains(got[0], ":"+positions[0]+":") {
			t.Errorf("%s\ngot %q\nwant %s: %s", text, got, positions, want)
		}
	}
}

// manyParams declares n launch parameters of m values.
func manyParams(n, m int) string {
	values := strings.TrimSuffix("0,1,2,3,4,5,6,7,8,9,"[:2*m], ",")
	var list []string
	for i := range n {
		list = append(list, string(rune('a'+i))+" = { values = ["+values+"] }")
	}
	return strings.Join(list, ", ")
}
