package shell

import (
	"os/exec"
	"strings"
	"testing"
)

// TestJoin runs a joined command in a shell. The command prints its words, each on a line of its own.
func TestJoin(t *testing.T) {
	words := []string{"plain", "-O2", "-DA=1", "", "two words", "it's", `"quoted"`, "$HOME", "`id`", "a;b", `back\slash`, "*", "~", "é", "#x"}
	out, err := exec.Command("/bin/sh", "-c", Join(append([]string{"printf", `%s\n`}, words...))).Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Join(words, "\n") + "\n"; string(out) != want {
		t.Errorf("the shell printed %q, expected %q", out, want)
	}
}

func TestQuoteLeavesPlainWords(t *testing.T) {
	for _, word := range []string{"/a/b-c_d.so", "-Wl,--as-needed", "x=y", "100%", "a@b:c^"} {
		if got := Quote(word); got != word {
			t.Errorf("Quote(%q) = %s, expected the word itself", word, got)
		}
	}
}
