package cache

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestKnownArtifact(t *testing.T) {
	matching := func(a Artifact) func(string) (string, error) {
		return func(string) (string, error) { return a.Digest, nil }
	}
	another := func(Artifact) func(string) (string, error) {
		return func(string) (string, error) { return SHA256([]byte("another")), nil }
	}
	unknown := func(Artifact) func(string) (string, error) {
		return func(string) (string, error) { return "", errors.New("not known") }
	}
	intact := func(Artifact) error { return nil }
	damaged := func(a Artifact) error { return os.WriteFile(a.Path, []byte("librarY"), 0o600) }
	linked := func(a Artifact) error {
		moved := a.Path + ".moved"
		return errors.Join(os.Rename(a.Path, moved), os.Symlink(moved, a.Path))
	}
	tests := []struct {
		name   string
		digest func(Artifact) func(string) (string, error)
		damage func(Artifact) error
		reason string // of the miss; "" for none
	}{
		{"matching digest, not read", matching, damaged, ""},
		{"other digest, read", another, intact, ""},
		{"other digest, damaged", another, damaged, "corrupt"},
		{"no digest, read", unknown, intact, ""},
		{"no digest, damaged", unknown, damaged, "corrupt"},
		{"matching digest, but a link", matching, linked, "not a regular file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := open(t)
			a := addArtifact(t, d, "library")
			if err := tt.damage(a); err != nil {
				t.Fatal(err)
			}
			_, err := d.KnownArtifact(a.ID, tt.digest(a))
			if tt.reason != "" {
				wantMiss(t, err, tt.reason)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("Artifact reads it", func(t *testing.T) {
		d := open(t)
		a := addArtifact(t, d, "library")
		if err := damaged(a); err != nil {
			t.Fatal(err)
		}
		if _, err := d.KnownArtifact(a.ID, matching(a)); err != nil {
			t.Fatal(err)
		}
		_, err := d.Artifact(a.ID)
		wantMiss(t, err, "corrupt")
	})
}

// TestOlderFieldNames reads the description of an artifact with the names that older versions gave two fields.
func TestOlderFieldNames(t *testing.T) {
	d, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, path := stageFile(t, d, "library")
	a, err := d.AddArtifact(s, path, Artifact{Module: "m", Target: "cpu", Part: "f dtype=int8", BuildRecordKey: "key"})
	if err != nil {
		t.Fatal(err)
	}
	meta := filepath.Join(filepath.Dir(a.Path), artifactMeta)
	data, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(data, []byte(sumEnd))
	rest = bytes.Replace(bytes.Replace(rest, []byte(`"part"`), []byte(`"spec"`), 1), []byte(`"build_record_key"`), []byte(`"last_key"`), 1)
	if err := os.WriteFile(meta, []byte(sumStart+SHA256(rest)+sumEnd+string(rest)), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := d.Artifact(a.ID)
	if err != nil || got.Part != a.Part || got.BuildRecordKey != a.BuildRecordKey {
		t.Errorf("part %q, record %q, %v", got.Part, got.BuildRecordKey, err)
	}
}
