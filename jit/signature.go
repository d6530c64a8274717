package jit

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit/schema"
)

// An operator's signature is written in the configuration and in C++, where AITER_EXPORT puts it
// into the library's data. A library whose signatures differ from the configuration's is not
// published. An operator without that data (tvm-ffi code without aiter/ffi.h) is not compared.

// signaturePrefix begins the symbol of an operator's signature in a library.
const signaturePrefix = "__aiter_signature_"

// signature is the arguments and the result of an operator, without alias sets of tensors and lengths of lists, which C++ types
// do not have.
type signature struct {
	args    []schema.Arg
	returns []schema.Type
}

// String returns the signature as a schema without a name.
func (s signature) String() string { return schema.Schema{Args: s.args, Returns: s.returns}.String() }

// declared returns the operators of the library, in the order of the configuration.
func (l *link) declared() []opconfig.Op {
	return slices.DeleteFunc(slices.Clone(l.mod.Ops), func(op opconfig.Op) bool { return !slices.Contains(l.ops, op.Name) })
}

// declaredSignature returns the signature of an operator by its schema.
func declaredSignature(op opconfig.Op) signature {
	s := slices.Clone(op.Schema.Args)
	for i := range s {
		s[i].Type.Alias, s[i].Type.Mutable, s[i].Type.Len = "", false, 0
	}
	return signature{args: s, returns: op.Schema.Returns}
}

// wrongSignatures returns an error text about operators whose signature in the library differs
// from their schema, "" if there is none.
func (l *link) wrongSignatures(found map[string]signature) string {
	var wrong []string
	for _, op := range l.declared() {
		got, compared := found[op.Name]
		if !compared {
			continue
		}
		what, want, is := "result", schema.Results(op.Schema.Returns), schema.Results(got.returns)
		if want == is {
			what, want, is = difference(declaredSignature(op), got)
		}
		if want != is {
			wrong = append(wrong, fmt.Sprintf("%s of operator %s: expected %s by its schema (%s), got %s from AITER_EXPORT(%s, ...) in %s",
				what, op.Name, want, op.Pos, is, op.Name, l.sourcesOf(op.Name)))
		}
	}
	if len(wrong) == 0 {
		return ""
	}
	return fmt.Sprintf("the library's operators differ from the configuration of %s: %s; "+
		"correct the schema, or the C++ function and its AITER_EXPORT, so that both are the same", l.mod.Name, strings.Join(wrong, "; "))
}

// difference returns the first argument in which two signatures differ. want equals got if there
// is none.
func difference(a, b signature) (what, want, got string) {
	for i := range max(len(a.args), len(b.args)) {
		if want, got = a.at(i), b.at(i); want != got {
			return fmt.Sprintf("argument %d", i+1), want, got
		}
	}
	return "", "", ""
}

// at describes an argument: "float eps=1e-06".
func (s signature) at(i int) string {
	if i >= len(s.args) {
		return "no argument"
	}
	return strconv.Quote(s.args[i].String())
}

// The layout of aiter::Signature of aiter/ffi.h.
const (
	signatureFormat  = 1
	resultFormat     = 2 // as format 1, with one more entry: the result's type
	maxSignatureArgs = 1 << 12
)

type signatureHeader struct{ Format, Count int32 }

type signatureArg struct {
	Name, Text                            [64]byte
	Type, Optional, DefaultType, Reserved int32
	Integer                               int64
	Real                                  float64
}

// readSignature reads the signature at a symbol of a library.
func readSignature(f *elf.File, s elf.Symbol) (sig signature, err error) {
	if int(s.Section) >= len(f.Sections) {
		return sig, errors.New("it is in no section")
	}
	section := f.Sections[s.Section]
	if section.Type != elf.SHT_PROGBITS || s.Value < section.Addr {
		return sig, fmt.Errorf("it is not in the data of section %s", section.Name)
	}
	data := io.NewSectionReader(section, int64(s.Value-section.Addr), int64(s.Size))
	var head signatureHeader
	if err := binary.Read(data, f.ByteOrder, &head); err != nil {
		return sig, err
	}
	if head.Format != signatureFormat && head.Format != resultFormat || head.Count < 0 || head.Count > maxSignatureArgs {
		return sig, fmt.Errorf("it has the format %d with %d arguments, expected the format %d or %d; use the aiter/ffi.h of this version",
			head.Format, head.Count, signatureFormat, resultFormat)
	}
	args := make([]signatureArg, head.Count+head.Format-signatureFormat)
	if uint64(binary.Size(head)+binary.Size(args)) > s.Size {
		return sig, fmt.Errorf("its %d bytes are too few for %d arguments", s.Size, head.Count)
	}
	if err := binary.Read(data, f.ByteOrder, args); err != nil {
		return sig, err
	}
	for _, a := range args[:head.Count] {
		sig.args = append(sig.args, a.arg())
	}
	for _, a := range args[head.Count:] {
		sig.returns = append(sig.returns, a.arg().Type)
	}
	return sig, nil
}

// The type indices of TVM FFI in signatures; noDefault stands for an argument that must be given.
const (
	noDefault   = -1
	indexNone   = 0
	indexInt    = 1
	indexBool   = 2
	indexFloat  = 3
	indexTensor = 7
	indexStr    = 8
	indexShape  = 69
)

// arg returns the argument as a schema has it.
func (a signatureArg) arg() schema.Arg {
	kinds := map[int32]schema.Kind{
		indexInt: schema.Int, indexBool: schema.Bool, indexFloat: schema.Float, indexTensor: schema.Tensor, indexStr: schema.Str,
		indexShape: schema.IntList,
	}
	arg := schema.Arg{Name: cString(a.Name), Type: schema.Type{Kind: kinds[a.Type], Optional: a.Optional != 0}}
	if v, ok := a.value(); ok {
		arg.Default = &v
	}
	return arg
}

// value returns the default, converted to the type of the argument as decode of aiter/ffi.h does;
// ok is false if there is none.
func (a signatureArg) value() (v schema.Value, ok bool) {
	number := a.DefaultType == indexInt || a.DefaultType == indexBool
	switch {
	case a.DefaultType == noDefault:
		return v, false
	case a.DefaultType == indexFloat:
		return schema.ValueOf(a.Real), true
	case a.DefaultType == indexStr:
		return schema.ValueOf(cString(a.Text)), true
	case number && a.Type == indexFloat:
		return schema.ValueOf(float64(a.Integer)), true
	case number && a.Type == indexBool:
		return schema.ValueOf(a.Integer != 0), true
	case number:
		return schema.ValueOf(a.Integer), true
	}
	return schema.None(), true
}

func cString(b [64]byte) string {
	text, _, _ := bytes.Cut(b[:], []byte{0})
	return string(text)
}
