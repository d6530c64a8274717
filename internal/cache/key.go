package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// Key names an action: the SHA-256, in hex, of its labelled lines.
type Key string

// Short returns the key's first 12 digits, for people.
func (k Key) Short() string { return string(k[:min(12, len(k))]) }

// Line is one labelled input of a key.
type Line struct {
	Label string `json:"label"`
	Value string `json:"value"`
}

// Lines are the inputs of a key, in order. They are stored, so that a later miss can report
// which of them changed.
type Lines []Line

// Add appends a line.
func (l *Lines) Add(label, value string) { *l = append(*l, Line{label, value}) }

// Key returns the SHA-256 of the lines. Values are quoted, so that no value can contain the
// end of a line.
func (l Lines) Key() Key {
	size := 0
	for _, x := range l {
		size += len(x.Label) + len(x.Value) + len(`""	""`) + 1
	}
	b := make([]byte, 0, size+size/4)
	for _, x := range l {
		b = strconv.AppendQuote(b, x.Label)
		b = append(b, '\t')
		b = strconv.AppendQuote(b, x.Value)
		b = append(b, '\n')
	}
	return Key(SHA256(b))
}

// TuningKey returns the key of the launch parameters that were chosen for a library, which its digest names. They are never older
// than the library: other code has another digest.
func TuningKey(digest string) Key {
	var l Lines
	l.Add("tuning", "1") // the version of the records
	l.Add("library", digest)
	return l.Key()
}

// Get returns the value of the first line with that label.
func (l Lines) Get(label string) (string, bool) {
	for _, x := range l {
		if x.Label == label {
			return x.Value, true
		}
	}
	return "", false
}

// SHA256 returns the digest of data in hex.
func SHA256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
