package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// Key names an action: the SHA-256, in hex, of its labelled lines.
type Key string

// Short returns the key's first 12 digits, for people.
func (k Key) Short() string { return string(k[:min(12, len(k))]) }

// Line is one part of a key.
type Line struct {
	Label string `json:"label"`
	Value string `json:"value"`
}

// Lines are the parts of a key, in order. They are kept beside what they name
// so that a later miss can say which of them changed.
type Lines []Line

// Add appends a part.
func (l *Lines) Add(label, value string) { *l = append(*l, Line{label, value}) }

// Key hashes the lines. Values are quoted, so that no value can look like the
// end of a line.
func (l Lines) Key() Key {
	var b strings.Builder
	for _, x := range l {
		b.WriteString(strconv.Quote(x.Label))
		b.WriteByte('\t')
		b.WriteString(strconv.Quote(x.Value))
		b.WriteByte('\n')
	}
	return Key(SHA256([]byte(b.String())))
}

// Get returns the value of the first line labelled so.
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
