package upstream

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// literal returns the content of a string literal, and whether a part of it is unknown.
func (p *expression) literal(t token) (text string, unknown bool, err error) {
	prefix, body, err := splitLiteral(t.text)
	switch {
	case err != nil:
		return "", false, err
	case strings.ContainsRune(prefix, 'b'):
		return "", false, errors.New("expected a string, got a bytes literal")
	case strings.ContainsRune(prefix, 'f'):
		return p.formatted(body, strings.ContainsRune(prefix, 'r'))
	case strings.ContainsRune(prefix, 'r'):
		return body, false, nil
	}
	text, err = unescape(body)
	return text, false, err
}

// splitLiteral returns the prefix of a literal in lower case, and the text between its quotes.
func splitLiteral(text string) (prefix, body string, err error) {
	i := strings.IndexAny(text, `'"`)
	if i < 0 {
		return "", "", fmt.Errorf("%q is not a string literal", text)
	}
	prefix, body = strings.ToLower(text[:i]), text[i:]
	for _, quote := range []string{`"""`, `'''`, `"`, `'`} {
		if strings.HasPrefix(body, quote) && strings.HasSuffix(body, quote) && len(body) >= 2*len(quote) {
			return prefix, body[len(quote) : len(body)-len(quote)], nil
		}
	}
	return "", "", fmt.Errorf("the string %s does not end", text)
}

// formatted returns the text of an f-string, and whether a part of it is unknown.
func (p *expression) formatted(body string, raw bool) (string, bool, error) {
	var b strings.Builder
	anyUnknown := false
	for body != "" {
		i := strings.IndexAny(body, "{}")
		if i < 0 {
			i = len(body)
		}
		plain := body[:i]
		if !raw {
			var err error
			if plain, err = unescape(plain); err != nil {
				return "", false, err
			}
		}
		b.WriteString(plain)
		if body = body[i:]; body == "" {
			break
		}
		if strings.HasPrefix(body, "{{") || strings.HasPrefix(body, "}}") {
			b.WriteByte(body[0])
			body = body[2:]
			continue
		}
		field, rest, err := fieldOf(body)
		if err != nil {
			return "", false, err
		}
		v, err := evaluateAt(field, p.known, p.depth+1)
		if err != nil {
			return "", false, err
		}
		b.WriteString(v.format())
		anyUnknown, body = anyUnknown || v.unknown, rest
		if b.Len() > maxText {
			return "", false, errors.New("the string is too long")
		}
	}
	return b.String(), anyUnknown, nil
}

// fieldOf returns the expression of the field {expression} with which text begins, and the text after the field.
func fieldOf(text string) (field, rest string, err error) {
	if text[0] == '}' {
		return "", "", errors.New(`f-string: a single "}"; write "}}" for a brace`)
	}
	depth := 0
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\'' || c == '"':
			end := strings.IndexByte(text[i+1:], c)
			if end < 0 {
				return "", "", errors.New("f-string: a string in a field does not end")
			}
			i += end + 1
		case strings.IndexByte("([{", c) >= 0:
			depth++
		case c == '}' && depth == 0:
			if strings.TrimSpace(text[1:i]) == "" {
				return "", "", errors.New("f-string: an empty field {}")
			}
			return text[1:i], text[i+1:], nil
		case strings.IndexByte(")]}", c) >= 0:
			if depth--; depth < 0 {
				return "", "", fmt.Errorf("f-string: %q without its opening bracket", string(c))
			}
		case depth == 0 && c == ':', depth == 0 && c == '!' && i+1 < len(text) && text[i+1] != '=':
			return "", "", errors.New("f-string: formats and conversions of a field are not supported")
		}
	}
	return "", "", errors.New(`f-string: "{" without "}"`)
}

// unescape replaces the escapes of a Python string.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) {
			return "", errors.New(`a string ends with "\"`)
		}
		switch c := s[i]; c {
		case '\n':
		case '\\', '\'', '"':
			b.WriteByte(c)
		case 'n', 't', 'r', 'a', 'b', 'f', 'v':
			b.WriteByte("\n\t\r\a\b\f\v"[strings.IndexByte("ntrabfv", c)])
		case 'x', 'u', 'U':
			n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			if i+n >= len(s) {
				return "", fmt.Errorf(`the escape \%c is too short`, c)
			}
			r, err := strconv.ParseUint(s[i+1:i+1+n], 16, 32)
			if err != nil || !utf8.ValidRune(rune(r)) {
				return "", fmt.Errorf(`bad escape \%c%s`, c, s[i+1:i+1+n])
			}
			b.WriteRune(rune(r))
			i += n
		case '0', '1', '2', '3', '4', '5', '6', '7':
			n := i + 1
			for n < len(s) && n < i+3 && s[n] >= '0' && s[n] <= '7' {
				n++
			}
			r, _ := strconv.ParseUint(s[i:n], 8, 32) // three octal digits at most
			b.WriteRune(rune(r))
			i = n - 1
		default: // Python keeps the backslash
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}
