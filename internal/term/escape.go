package term

import (
	"io"
	"strconv"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Escaper writes text to another writer and escapes all control characters except
// newline and tab: ESC becomes \x1b. File names and compiler messages may contain
// control characters, and a terminal executes them. Output to files and pipes is
// escaped too, because users print it on terminals. The escapes are valid JSON for all
// characters that a JSON encoder does not escape itself.
type Escaper struct {
	to io.Writer

	mu   sync.Mutex
	rest []byte // the beginning of a character that the next write continues
}

// NewEscaper returns an escaper that writes to w.
func NewEscaper(w io.Writer) *Escaper { return &Escaper{to: w} }

// Write implements io.Writer.
func (e *Escaper) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := append(e.rest, p...)
	whole := wholeCharacters(text)
	e.rest = append([]byte(nil), text[whole:]...)
	if _, err := e.to.Write(appendEscaped(nil, text[:whole], false)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes the beginning of a character that no write has continued.
func (e *Escaper) Flush() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.rest) > 0 {
		_, _ = e.to.Write(appendEscaped(nil, e.rest, false)) // the writer keeps its error
	}
	e.rest = nil
}

// wholeCharacters returns the length of text without a truncated last character.
func wholeCharacters(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if at := len(text) - n; utf8.RuneStart(text[at]) {
			if !utf8.FullRune(text[at:]) {
				return at
			}
			break
		}
	}
	return len(text)
}

// EscapeLine escapes control characters in s, newlines and tabs included.
func EscapeLine(s string) string { return string(appendEscaped(nil, []byte(s), true)) }

// appendEscaped appends text to out. It escapes control characters, characters that
// change the direction of text, and bytes that are not UTF-8. With line set it
// escapes newlines and tabs too.
func appendEscaped(out, text []byte, line bool) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case !line && (r == '\n' || r == '\t'), unicode.IsGraphic(r) && (r != utf8.RuneError || n > 1):
			out = append(out, text[:n]...)
		case r == utf8.RuneError:
			out = appendHex(append(out, `\x`...), text[0], 2)
		case r < ' ':
			quoted := strconv.QuoteRune(r)
			out = append(out, quoted[1:len(quoted)-1]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = appendHex(append(out, `\u`...), high, 4)
			out = appendHex(append(out, `\u`...), low, 4)
		default:
			out = appendHex(append(out, `\u`...), r, 4)
		}
		text = text[n:]
	}
	return out
}

func appendHex[N byte | rune](out []byte, n N, digits int) []byte {
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		out = append(out, "0123456789abcdef"[int(n)>>shift&15])
	}
	return out
}
