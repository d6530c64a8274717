package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// request is one convolution.
type request struct {
	X      [][][]float32 // batch, dim, seqlen
	Weight [][]float32   // dim, width
	Bias   []float32     // dim, or left out
	SiLU   bool
}

// requestError reports a body that is not a valid request.
type requestError struct{ reason string }

func (e *requestError) Error() string { return "request: " + e.reason }

// decode reads a request: one JSON object with known keys, each at most once. It
// refuses what encoding/json accepts: unknown keys, repeated keys, text after the
// object, and null.
func decode(body []byte) (request, error) {
	var req request
	fields := map[string]any{"x": &req.X, "weight": &req.Weight, "bias": &req.Bias, "silu": &req.SiLU}
	in := json.NewDecoder(bytes.NewReader(body))
	if start, err := in.Token(); err != nil || start != json.Delim('{') {
		return req, &requestError{`expected a JSON object, such as {"x": [[[1,2]]], "weight": [[1]]}`}
	}
	for in.More() {
		if err := decodeField(in, fields); err != nil {
			return req, err
		}
	}
	if _, err := in.Token(); err != nil {
		return req, &requestError{jsonReason(err)}
	}
	end := in.InputOffset()
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return req, &requestError{fmt.Sprintf("expected nothing after the JSON object, which ends at byte %d", end)}
	}
	if bytes.Contains(body, []byte("null")) {
		return req, &requestError{"null is not allowed; leave the key out"}
	}
	return req, nil
}

// decodeField reads a key and its value, and removes the key from fields.
func decodeField(in *json.Decoder, fields map[string]any) error {
	token, err := in.Token()
	if err != nil {
		return &requestError{jsonReason(err)}
	}
	key, _ := token.(string) // keys of objects are strings
	field := fields[key]
	if field == nil {
		return &requestError{fmt.Sprintf("unknown or repeated key %.40q; expected x, weight, bias and silu, each at most once", key)}
	}
	delete(fields, key)
	if err := in.Decode(field); err != nil {
		return &requestError{fmt.Sprintf("%s: %s", key, jsonReason(err))}
	}
	return nil
}

func jsonReason(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the JSON ends too early"
	}
	return err.Error()
}
