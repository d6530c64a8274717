package aitercmd

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseIntList(t *testing.T) {
	for text, want := range map[string]string{"": "[]", "7": "[7]", "1,-2, 0x10": "[1 -2 16]", "1,,2": "not a value of type int[]",
		"1.5": "not a value of type int[]", "a": "not a value of type int[]", ",": "not a value of type int[]",
		"9223372036854775808": "not a value of type int[]"} {
		list, err := parseIntList(text)
		got := fmt.Sprint(list)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func FuzzParseIntList(f *testing.F) {
	f.Add("1,2,3")
	f.Add("")
	f.Add(" -4,0x7f")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseIntList(text)
		if err != nil {
			return
		}
		words := strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]")
		if again, err := parseIntList(words); err != nil || fmt.Sprint(again) != fmt.Sprint(list) {
			t.Errorf("%q is %v, written again %v, %v", text, list, again, err)
		}
	})
}
