package opconfig

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// walkString reads the string literal whose opening quote is at src[at], of any of TOML's four
// kinds. It calls piece with every run of decoded text and that run's offset in src, and
// returns the offset after the literal.
func walkString(src string, at int, piece func(raw int, decoded string)) int {
	quote := openQuote(src[at:])
	raw := quote[0] == '\''
	i := at + len(quote)
	if len(quote) == 3 {
		i += newlineLen(src[i:])
	}
	for i < len(src) {
		if n := closeLen(src[i:], quote); n > 0 {
			piece(i, src[i:i+n-len(quote)]) // quotes before the closing ones
			return i + n
		}
		decoded, n := src[i:i+1], 1
		if src[i] == '\\' && !raw {
			decoded, n = unescape(src[i:])
		}
		piece(i, decoded)
		i += n
	}
	return len(src)
}

// openQuote returns the quote, single or triple, at the start of s.
func openQuote(s string) string {
	if triple := strings.Repeat(s[:1], 3); strings.HasPrefix(s, triple) {
		return triple
	}
	return s[:1]
}

// closeLen returns the length of the closing quote at the start of s, 0 if there is none. Up to
// two more quotes may precede the closing three.
func closeLen(s, quote string) int {
	if !strings.HasPrefix(s, quote) {
		return 0
	}
	if len(quote) == 1 {
		return 1
	}
	n := len(s) - len(strings.TrimLeft(s, quote[:1]))
	return min(n, 5)
}

func newlineLen(s string) int {
	if strings.HasPrefix(s, "\r\n") {
		return 2
	}
	if strings.HasPrefix(s, "\n") {
		return 1
	}
	return 0
}

// unescape returns the decoded escape sequence at the start of s and its length. A backslash at
// the end of a line also removes the white space that follows.
func unescape(s string) (string, int) {
	if len(s) < 2 {
		return "", 1
	}
	if digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[1]]; digits > 0 {
		n := min(2+digits, len(s))
		code, err := strconv.ParseUint(s[2:n], 16, 32)
		if err != nil {
			code = utf8.RuneError
		}
		return string(rune(code)), n
	}
	rest := strings.TrimLeft(s[1:], " \t\r\n")
	if blank := s[1 : len(s)-len(rest)]; strings.Contains(blank, "\n") {
		return "", 1 + len(blank)
	}
	if i := strings.IndexByte("btnfre", s[1]); i >= 0 {
		return "\b\t\n\f\r\x1b"[i : i+1], 2
	}
	return s[1:2], 2
}

// rawOffset returns the offset in src of the byte at offset want of a string's value; at is the
// offset of the literal.
func rawOffset(src string, at, want int) int {
	seen, found := 0, -1
	end := walkString(src, at, func(raw int, decoded string) {
		if found < 0 && want < seen+len(decoded) {
			found = raw
			if len(decoded) > 1 && src[raw] != '\\' {
				found += want - seen
			}
		}
		seen += len(decoded)
	})
	if found < 0 { // the end of the value
		found = max(at, end-len(openQuote(src[at:])))
	}
	return found
}
