package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// docs/fleet.md has the tables that the program prints.
func TestDocumentedTables(t *testing.T) {
	var out bytes.Buffer
	if err := run(nil, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	for table := range strings.SplitSeq(strings.TrimSpace(out.String()), "\n\n") {
		if !strings.Contains(string(text), table+"\n") {
			t.Errorf("docs/fleet.md lacks this table; copy it from the output of `go run ./examples/fleetsim`:\n%s", table)
		}
	}
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"--json", "--nodes", "3", "--uplink", "1", "--run", "^set from a registry$"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Assumptions map[string]any
		Results     []result
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Assumptions["nodes"] != 3.0 || got.Assumptions["uplink"] != gigabit || got.Assumptions["modules"] != "AIter's" {
		t.Errorf("assumptions %v", got.Assumptions)
	}
	if len(got.Results) != 1 || got.Results[0].FromServer < 3*aiterModules*20e6*0.999 || got.Results[0].Last < 11 {
		t.Errorf("results %+v", got.Results)
	}
}

func TestModules(t *testing.T) {
	sum := 0.0
	for _, m := range aiter() {
		sum += m.seconds
	}
	check(t, "seconds of AIter's modules", sum, aiterSeconds)
	dir := t.TempDir()
	for _, c := range []struct{ text, want string }{
		{"# of a test\nmodule_a 20 5\n\nmodule_b 1.5\n", ""},
		{"module_a 20 5\nmodule_b\n", "modules:2: 1 words"},
		{"module_a 20 5 6\n", "modules:1: 4 words"},
		{"module_a 0\n", `modules:1: "0": expected a number above 0`},
		{"module_a 1 NaN\n", `"NaN": expected`},
		{"# empty\n", "no module"},
	} {
		file := filepath.Join(dir, "modules")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := readModules(file)
		if c.want == "" {
			if err != nil || len(list) != 2 || list[0] != (module{"module_a", 20, 5e6}) || list[1] != (module{"module_b", 1.5, 0}) {
				t.Errorf("%q: %v, %v", c.text, list, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--nodes 0", "expected an integer from 1"},
		{"--uplink -1", "expected a number above 0, in Gb/s"},
		{"--slack 2", "from 0 to 0.1"},
		{"--latency 5", "expected a duration"},
		{"--shared=perhaps", "invalid"},
		{"--modules nowhere", "nowhere"},
		{"--run nothing-has-this-name", "no scenario"},
		{"--run (", "-run"},
		{"all", `unexpected argument "all"`},
	} {
		err := run(strings.Fields(c.args), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}
