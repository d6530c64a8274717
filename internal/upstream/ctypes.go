package upstream

import (
	"slices"
	"strings"
)

// readExports returns the extern "C" functions with these names that a C++ text defines: as NAME(parameters) {, or with AIter's macro
// AITER_CTYPES_DEFINE_ENTRYPOINT(NAME, (parameters), ...).
func readExports(text string, names []string) []Function {
	tokens := scanAll(newCScanner(text))
	tokens = append(tokens, token{}, token{}, token{})
	var list []Function
	for i, t := range tokens {
		if t.kind != nameToken || !slices.Contains(names, t.text) {
			continue
		}
		if f, ok := exportAt(tokens, i); ok && !slices.ContainsFunc(list, func(x Function) bool { return x.Name == f.Name }) {
			list = append(list, f)
		}
	}
	return list
}

// exportAt reads the function whose name is token i; ok is false if the tokens do not define it.
func exportAt(tokens []token, i int) (f Function, ok bool) {
	f = Function{Name: tokens[i].text, ABI: CTypes, Result: "int"}
	next := tokens[i+1].text
	macro := i >= 2 && tokens[i-1].text == "(" && strings.HasPrefix(tokens[i-2].text, "AITER_CTYPES_DEFINE_ENTRYPOINT")
	switch {
	case macro && next == "," && tokens[i+2].text == "(":
		f.Status = strings.HasSuffix(tokens[i-2].text, "_VOID")
		i += 2
	case !macro && next == "(":
		result, ok := resultBefore(tokens, i)
		if !ok {
			return f, false
		}
		f.Result = result
		i++
	default:
		return f, false
	}
	items, end := parenthesized(tokens, i)
	if end < 0 || !macro && tokens[end].text != "{" {
		return f, false
	}
	for _, item := range items {
		p, ok := declaredParam(item)
		if !ok {
			return f, false
		}
		f.Params = append(f.Params, p)
	}
	return f, true
}

// resultBefore returns the type of the result before a function's name.
func resultBefore(tokens []token, i int) (string, bool) {
	start := i
	for start > 0 {
		t := tokens[start-1]
		if t.kind != nameToken && t.text != "*" && t.text != "::" || notAType(t.text) {
			break
		}
		start--
	}
	words := tokens[start:i]
	for len(words) > 1 && isSpecifier(words[0].text) {
		words = words[1:]
	}
	if len(words) == 0 || isSpecifier(words[0].text) {
		return "", false
	}
	return cType(words), true
}

// notAType reports whether a word before a name is a keyword that cannot be a part of a declaration.
func notAType(word string) bool {
	return slices.Contains([]string{"return", "else", "do", "case", "goto", "new", "delete", "throw", "co_return"}, word)
}

// isSpecifier reports whether a word before a function's name is a specifier or a macro, and not a part of the type.
func isSpecifier(word string) bool {
	return slices.Contains([]string{"extern", "inline", "static"}, word) || strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == ""
}

// parenthesized returns the items of the list (...) that begins at token i, and the index of the token after it, -1 if the list does
// not end.
func parenthesized(tokens []token, i int) (items [][]token, end int) {
	depth := 0
	var item []token
	for ; i < len(tokens) && tokens[i].kind != endToken && tokens[i].kind != badToken; i++ {
		switch t := tokens[i]; {
		case strings.Contains("([{<", t.text) && t.kind == signToken:
			if depth++; depth == 1 {
				continue
			}
		case strings.Contains(")]}>", t.text) && t.kind == signToken:
			if depth--; depth == 0 {
				if len(item) > 0 {
					items = append(items, item)
				}
				return items, i + 1
			}
		case t.text == "," && depth == 1:
			items, item = append(items, item), nil
			continue
		}
		item = append(item, tokens[i])
	}
	return nil, -1
}

// declaredParam reads "type name" or "type name = default".
func declaredParam(item []token) (Param, bool) {
	for i, t := range item {
		if t.text == "=" {
			item = item[:i]
			break
		}
	}
	if len(item) < 2 || item[len(item)-1].kind != nameToken {
		return Param{}, false
	}
	last := len(item) - 1
	return Param{Name: item[last].text, Type: cType(item[:last])}, true
}

// cType returns the tokens of a type as Clang prints types: "const char *", "std::optional<long>".
func cType(list []token) string {
	var b strings.Builder
	for i, t := range list {
		switch {
		case i == 0:
		case t.text == "*" && list[i-1].text != "*", t.text == "&", t.kind == nameToken && list[i-1].kind == nameToken:
			b.WriteByte(' ')
		case list[i-1].text == ",":
			b.WriteByte(' ')
		}
		b.WriteString(t.text)
	}
	return b.String()
}
