package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// module is a module that nodes need. A node compiles it on one processor, or loads it as a layer.
type module struct {
	name    string
	seconds float64 // of the compile on one processor
	bytes   float64 // of its layer for one target
}

// AIter's modules, from github.com/ROCm/aiter/issues/2336, which has the time of 23 modules one after another and the times of ten of
// them. The other modules share the remaining time equally.
const (
	aiterModules = 23
	aiterSeconds = 943.8
)

var aiterPublished = []module{
	{name: "module_aiter_operator", seconds: 551.1},
	{name: "module_moe_sorting_opus", seconds: 23.3},
	{name: "module_quick_all_reduce", seconds: 20.9},
	{name: "module_attention_asm", seconds: 20.9},
	{name: "module_mla_asm", seconds: 20.7},
	{name: "module_custom", seconds: 20.5},
	{name: "module_top_k_per_row", seconds: 19.9},
	{name: "module_pos_encoding", seconds: 19.7},
	{name: "module_fmha_v3_bwd", seconds: 19.4},
	{name: "module_fmha_v3_fwd", seconds: 19.3},
}

// aiter returns AIter's modules.
func aiter() []module {
	rest, list := aiterSeconds, append([]module(nil), aiterPublished...)
	for _, m := range list {
		rest -= m.seconds
	}
	for others := aiterModules - len(list); len(list) < aiterModules; {
		list = append(list, module{name: fmt.Sprintf("other %d", len(list)+1), seconds: rest / float64(others)})
	}
	return list
}

// readModules reads a module from each line of a file: its name, the seconds of its compile, and optionally the MB of its layer.
func readModules(path string) ([]module, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []module
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		m, err := parseModule(fields)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		list = append(list, m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no module, expected lines such as: module_a 20.5 12", path)
	}
	return list, nil
}

func parseModule(fields []string) (module, error) {
	m := module{name: fields[0]}
	values := []*float64{&m.seconds, &m.bytes}
	if len(fields) < 2 || len(fields) > 1+len(values) {
		return m, fmt.Errorf("%d words, expected a name, seconds and optionally MB", len(fields))
	}
	for i, word := range fields[1:] {
		v, err := strconv.ParseFloat(word, 64)
		if err != nil || !(v > 0 && v < 1e9) {
			return m, fmt.Errorf("%q: expected a number above 0", word)
		}
		*values[i] = v
	}
	m.bytes *= megabyte
	return m, nil
}

// split divides the module that compiles longest into parts.
func split(list []module, parts int) []module {
	longest := 0
	for i, m := range list {
		if m.seconds > list[longest].seconds {
			longest = i
		}
	}
	m := list[longest]
	var out []module
	out = append(out, list[:longest]...)
	for i := range parts {
		out = append(out, module{fmt.Sprintf("%s, part %d", m.name, i+1), m.seconds / float64(parts), m.bytes / float64(parts)})
	}
	return append(out, list[longest+1:]...)
}
