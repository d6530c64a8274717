package aitercmd

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/aiter-go/aiter/internal/spelling"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// maxShapes is the number of cases that a file of shapes may describe.
const maxShapes = 10_000

// parseShapes reads the cases of a file. A line describes one or several cases; tuneLong explains the format. The error names the
// file and the line.
func parseShapes(file, text string, op optests.Declaration) ([]optests.Config, error) {
	var list []optests.Config
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		var cases []optests.Config
		var err error
		if op.Listed() {
			cases, err = pickCases(op.Configs(), []string{line})
		} else {
			cases, err = parseShape(line, op)
		}
		if err != nil {
			return nil, usagef("%s:%d: %v", file, number, err)
		}
		if list = append(list, cases...); len(list) > maxShapes {
			return nil, usagef("%s:%d: more than %d cases", file, number, maxShapes)
		}
	}
	if len(list) == 0 {
		return nil, usagef("%s has no cases; expected lines such as %q", file, "batch=1 dim=64 seqlen=128 dtype=float32")
	}
	return list, nil
}

// parseShape returns the cases of a line: all combinations of its values.
func parseShape(line string, op optests.Declaration) ([]optests.Config, error) {
	usual := op.Default()
	usual.DType = cmp.Or(usual.DType, tensor.Float32)
	list := []optests.Config{{Name: "-", Case: usual}}
	params := op.Params()
	for word := range strings.FieldsSeq(line) {
		key, values, ok := strings.Cut(word, "=")
		if !ok {
			return nil, usagef("%q: expected name=value", word)
		}
		key = strings.ReplaceAll(key, "-", "_")
		i := slices.IndexFunc(params, func(p optests.Param) bool { return p.Name == key })
		if i < 0 && key != "dtype" {
			return nil, usagef("unknown size or option %q%s", key, suggestName(key, params))
		}
		var next []optests.Config
		for value := range strings.SplitSeq(values, ",") {
			for _, c := range list {
				var err error
				if key == "dtype" {
					c.Case.DType, err = elementTypeOf(value)
				} else {
					c.Case, err = setWord(c.Case, params[i], value)
				}
				if err != nil {
					return nil, err
				}
				next = append(next, c)
			}
		}
		if list = next; len(list) > maxShapes {
			return nil, usagef("more than %d cases", maxShapes)
		}
	}
	return list, nil
}

// elementTypeOf reads an element type of cases.
func elementTypeOf(word string) (tensor.DType, error) {
	dt, err := tensor.ParseDType(word)
	if err != nil || !slices.Contains(optests.DTypes(), dt) {
		return dt, usagef("dtype=%s: expected %s", word, joinTypes(optests.DTypes()))
	}
	return dt, nil
}

// setWord returns the case with the value that a word names.
func setWord(c optests.Case, p optests.Param, word string) (optests.Case, error) {
	var value any = word
	var err error
	switch p.Kind {
	case optests.Size, optests.Int:
		value, err = strconv.ParseInt(word, 10, 64)
	case optests.Float:
		value, err = strconv.ParseFloat(word, 64)
	case optests.Bool:
		value, err = strconv.ParseBool(word)
	}
	if err != nil {
		return c, usagef("%s=%s: %v", p.Name, word, err)
	}
	return p.Set(c, value)
}

func suggestName(word string, params []optests.Param) string {
	names := []string{"dtype"}
	for _, p := range params {
		names = append(names, p.Name)
	}
	if nearest := spelling.NearestWord(word, names); nearest != "" {
		return "; did you mean " + nearest + "?"
	}
	return "; expected " + strings.Join(names, ", ")
}
