package cache

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
)

const artifactMeta = "artifact.json"

// The description of an artifact is JSON. Its first field is the SHA-256 of the rest. The
// artifact's ID covers module, part, target and library only. The checksum covers all fields,
// because [Dir.Clean] finds the entries of the artifact by them.
const (
	sumStart = "{\n  \"checksum\": \""
	sumEnd   = "\","
)

func encodeArtifact(a Artifact) ([]byte, error) {
	meta, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return nil, err
	}
	rest := append(bytes.TrimPrefix(meta, []byte("{")), '\n')
	return append([]byte(sumStart+SHA256(rest)+sumEnd), rest...), nil
}

var errDescription = errors.New(artifactMeta + " does not describe it")

// decodeArtifact reads the description of the artifact with that ID.
func decodeArtifact(data []byte, id string, a *Artifact) error {
	sum, rest, ok := bytes.Cut(data, []byte(sumEnd))
	if !ok || string(sum) != sumStart+SHA256(rest) {
		return fmt.Errorf("%w: its checksum does not match", errDescription)
	}
	d := struct {
		*Artifact
		Spec    string `json:"spec"`     // Part in descriptions of older versions
		LastKey Key    `json:"last_key"` // BuildRecordKey in these
	}{Artifact: a}
	if err := json.Unmarshal(data, &d); err != nil {
		return fmt.Errorf("%w: %w", errDescription, err)
	}
	a.Part, a.BuildRecordKey = cmp.Or(a.Part, d.Spec), cmp.Or(a.BuildRecordKey, d.LastKey)
	if a.identify() != id || a.ID != id || a.Module == "" || a.Module != filepath.Base(a.Module) {
		return fmt.Errorf("%w: it is of artifact %s (%s for %s)", errDescription, Key(a.ID).Short(), a.Module, a.Target)
	}
	return nil
}
