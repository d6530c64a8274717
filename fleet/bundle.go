package fleet

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// A signature is a Sigstore bundle, version 0.3, as cosign 3 writes it: a DSSE envelope around an in-toto statement whose
// subject is the digest of the manifest. Times and transparency logs in a bundle are not checked, because nodes have no connection
// to them; a key is revoked by removing it from AITER_JIT_KEYS.
const (
	bundleType    = "application/vnd.dev.sigstore.bundle.v0.3+json"
	payloadType   = "application/vnd.in-toto+json"
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://sigstore.dev/cosign/sign/v1"
	maxBundle     = 1 << 20 // bytes
)

type bundle struct {
	MediaType string    `json:"mediaType"`
	Material  *material `json:"verificationMaterial,omitempty"`
	Envelope  *envelope `json:"dsseEnvelope,omitempty"`
}

type material struct {
	PublicKey *hint `json:"publicKey,omitempty"`
}

type hint struct {
	Hint string `json:"hint"` // base64 of the SHA-256 of the public key
}

type envelope struct {
	Payload     []byte      `json:"payload"`
	PayloadType string      `json:"payloadType"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	Sig []byte `json:"sig"`
}

type statement struct {
	Type          string         `json:"_type"`
	Subject       []subject      `json:"subject"`
	PredicateType string         `json:"predicateType"`
	Predicate     map[string]any `json:"predicate"`
}

type subject struct {
	Digest map[string]string `json:"digest"`
}

// preAuth returns the bytes that a DSSE signature covers.
func preAuth(kind string, payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(payload), payload)
}

// sign returns a bundle for the digest of a manifest, "sha256:...".
func (s *Signer) sign(digest string) ([]byte, error) {
	algorithm, sum, _ := strings.Cut(digest, ":")
	payload, err := json.Marshal(statement{
		Type: statementType, Subject: []subject{{map[string]string{algorithm: sum}}}, PredicateType: predicateType, Predicate: map[string]any{},
	})
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(preAuth(payloadType, payload))
	sig, err := ecdsa.SignASN1(rand.Reader, s.private, hash[:])
	if err != nil {
		return nil, err
	}
	return json.Marshal(bundle{
		MediaType: bundleType,
		Material:  &material{&hint{keyHint(s.Key)}},
		Envelope:  &envelope{payload, payloadType, []signature{{sig}}},
	})
}

// keyHint returns the hint of a key in bundles.
func keyHint(k Key) string {
	id, _ := hex.DecodeString(k.ID) // newKey has encoded it
	return base64.StdEncoding.EncodeToString(id)
}

var (
	errBundle    = errors.New("it is not a Sigstore bundle 0.3 with a DSSE envelope and one signature")
	errSubject   = errors.New("it signs another manifest")
	errStatement = errors.New("it is not a signature of cosign")
	errOtherKey  = errors.New("it was made with another key")
)

// verifyBundle returns the key that signed a digest, "sha256:...". The signature is checked before the content of its statement.
func verifyBundle(data []byte, digest string, keys []Key) (Key, error) {
	var b bundle
	if err := json.Unmarshal(data, &b); err != nil {
		return Key{}, fmt.Errorf("%w: %w", errBundle, err)
	}
	if b.MediaType != bundleType || b.Envelope == nil || b.Envelope.PayloadType != payloadType || len(b.Envelope.Signatures) != 1 {
		return Key{}, errBundle
	}
	hash := sha256.Sum256(preAuth(b.Envelope.PayloadType, b.Envelope.Payload))
	for _, k := range keys {
		if ecdsa.VerifyASN1(k.key, hash[:], b.Envelope.Signatures[0].Sig) {
			return k, checkStatement(b.Envelope.Payload, digest)
		}
	}
	return Key{}, errOtherKey
}

// checkStatement fails unless a signed statement is cosign's for the digest.
func checkStatement(payload []byte, digest string) error {
	var s statement
	if err := json.Unmarshal(payload, &s); err != nil {
		return fmt.Errorf("%w: %w", errStatement, err)
	}
	if s.Type != statementType || s.PredicateType != predicateType || len(s.Subject) != 1 {
		return errStatement
	}
	if sum, ok := strings.CutPrefix(digest, "sha256:"); !ok || s.Subject[0].Digest["sha256"] != sum {
		return errSubject
	}
	return nil
}
