package upstream_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/upstream"
)

// TestPythonStated: each operator of AIter's sources states what AIter's Python does besides, or that it does nothing. docs/aiter.md
// lists the statements.
func TestPythonStated(t *testing.T) {
	texts, names := map[string][]string{}, []string(nil)
	for _, op := range operators(declared(t, t.TempDir())) {
		switch {
		case op.Python == "":
			t.Errorf("%s: %s has no \"python\": state what AIter's Python does besides the call of the function, such as checks that "+
				"the adapter does not make, or \"nothing\"", op.Pos, op.Name)
		case op.Python != "nothing":
			if texts[op.Python] == nil {
				names = append(names, op.Python)
			}
			texts[op.Python] = append(texts[op.Python], "`"+strings.TrimPrefix(op.Name, "aiter_")+"`")
		}
	}
	var b strings.Builder
	b.WriteString("| operator | AIter's Python also |\n|---|---|\n")
	for _, text := range names {
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(texts[text], ", "), text)
	}
	docsTable(t, "| operator | AIter's Python also |", b.String(), "", "TestPythonStated")
}

func operators(d upstream.Declared) (list []opconfig.Op) {
	for _, m := range d.Config.Modules {
		list = append(list, m.Ops...)
	}
	return list
}

// TestPythonChecks compares the statements with AIter's Python: a function beside a stub that calls the stub, and that asserts or
// raises, makes checks. An operator whose adapter makes all of them is in the list here.
func TestPythonChecks(t *testing.T) {
	c, ported := realCheckout(t), []string{"aiter_topk_gating", "aiter_fused_qk_rmsnorm_per_token_quant"}
	var checked []string
	var stubs []upstream.Operator
	for _, s := range c.Status(declared(t, c.Dir)) {
		stubs = append(stubs, s.Operators...)
	}
	for _, op := range operators(declared(t, c.Dir)) {
		for _, stub := range stubs {
			function := strings.TrimPrefix(op.Name, "aiter_")
			if stub.Function != function && stub.Function != function+"_opus" {
				continue
			}
			text, err := os.ReadFile(filepath.Join(c.Dir, stub.File))
			if err != nil {
				t.Fatal(err)
			}
			if wrapper := checkingCaller(string(text), stub.Name); wrapper != "" {
				checked = append(checked, op.Name)
				if op.Python == "nothing" && !slices.Contains(ported, op.Name) {
					t.Errorf("%s: %s states that AIter's Python does nothing else, but %s of %s makes checks", op.Pos, op.Name, wrapper, stub.File)
				}
			}
		}
	}
	for _, name := range ported {
		if !slices.Contains(checked, name) {
			t.Errorf("%s is in the list of operators whose checks are ported, but AIter's Python makes none", name)
		}
	}
	if len(checked) < 5 {
		t.Errorf("AIter's Python makes checks for %q, want 5 operators or more", checked)
	}
}

// checkingCaller returns the name of the first function in a Python file that calls another one, and that asserts or raises.
func checkingCaller(text, called string) string {
	definition := regexp.MustCompile(`(?m)^def (\w+)\(`)
	starts := definition.FindAllStringSubmatchIndex(text, -1)
	call, check := regexp.MustCompile(`\b`+called+`\(`), regexp.MustCompile(`(?m)^\s+(assert|raise)\b|_check\(`)
	for i, at := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		name, body := text[at[2]:at[3]], text[at[1]:end]
		if name != called && call.MatchString(body) && check.MatchString(body) {
			return name
		}
	}
	return ""
}
