package main

import (
	"io"
	"strconv"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// visible writes text to another writer, with escapes for all control characters
// but newline and tab: ESC becomes \x1b. File names and compiler messages may hold
// control characters, and a terminal executes them. visible escapes output to files
// and pipes too, because users print those on terminals. The escapes of characters
// that a JSON encoder leaves in strings are valid JSON.
type visible struct {
	to io.Writer

	mu   sync.Mutex
	rest []byte // the beginning of a character that the next write continues
}

// Write implements io.Writer.
func (v *visible) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	text := append(v.rest, p...)
	whole := wholeCharacters(text)
	v.rest = append([]byte(nil), text[whole:]...)
	if _, err := v.to.Write(appendVisible(nil, text[:whole], false)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// flush writes the beginning of a character that no write has continued.
func (v *visible) flush() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.rest) > 0 {
		_, _ = v.to.Write(appendVisible(nil, v.rest, false)) // output remembers the error
	}
	v.rest = nil
}

// wholeCharacters returns the length of text without a character that is cut off at its end.
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

// oneLine is s with newlines and tabs escaped too.
func oneLine(s string) string { return string(appendVisible(nil, []byte(s), true)) }

// appendVisible appends text to out, and escapes control characters, characters that
// change the direction of text, and bytes that are not UTF-8. With line set it
// escapes newlines and tabs too.
func appendVisible(out, text []byte, line bool) []byte {
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
