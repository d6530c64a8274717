package cache

import (
	"errors"
	"os"
	"testing"
)

func TestKnownArtifact(t *testing.T) {
	right := func(a Artifact) func(string) (string, error) {
		return func(string) (string, error) { return a.Digest, nil }
	}
	another := func(Artifact) func(string) (string, error) {
		return func(string) (string, error) { return SHA256([]byte("another")), nil }
	}
	nothing := func(Artifact) func(string) (string, error) {
		return func(string) (string, error) { return "", errors.New("not known") }
	}
	whole := func(Artifact) error { return nil }
	damaged := func(a Artifact) error { return os.WriteFile(a.Path, []byte("librarY"), 0o600) }
	linked := func(a Artifact) error {
		moved := a.Path + ".moved"
		return errors.Join(os.Rename(a.Path, moved), os.Symlink(moved, a.Path))
	}
	tests := []struct {
		name   string
		word   func(Artifact) func(string) (string, error)
		damage func(Artifact) error
		reason string // of the miss; "" for none
	}{
		{"right word, not read", right, damaged, ""},
		{"another word, read", another, whole, ""},
		{"another word, damaged", another, damaged, "corrupt"},
		{"no word, read", nothing, whole, ""},
		{"no word, damaged", nothing, damaged, "corrupt"},
		{"right word, but a link", right, linked, "no regular file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := open(t)
			a := addArtifact(t, d, "library")
			if err := tt.damage(a); err != nil {
				t.Fatal(err)
			}
			_, err := d.KnownArtifact(a.ID, tt.word(a))
			if tt.reason != "" {
				wantMiss(t, err, tt.reason)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("who loads it reads it", func(t *testing.T) {
		d := open(t)
		a := addArtifact(t, d, "library")
		if err := damaged(a); err != nil {
			t.Fatal(err)
		}
		if _, err := d.KnownArtifact(a.ID, right(a)); err != nil {
			t.Fatal(err)
		}
		_, err := d.Artifact(a.ID)
		wantMiss(t, err, "corrupt")
	})
}
