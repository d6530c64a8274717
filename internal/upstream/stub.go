package upstream

import (
	"strings"
)

// Operator is a stub in AIter's Python code: a function with the decorator @compile_ops.
type Operator struct {
	Name     string // in Python
	Function string // in the library
	Module   string // "" if the stub's expression for it is not a constant
	ABI      ABI
	Args     []StubArg
	File     string // relative to the checkout
	Line     int
}

// ABI is the way in which Python calls a function of a library.
type ABI string

// The ABIs.
const (
	CTypes  ABI = "ctypes"  // extern "C"
	Tensors ABI = "tensors" // pybind11, with aiter_tensor_t for tensors
	Torch   ABI = "torch"   // pybind11, with PyTorch's tensors
)

// StubArg is an argument of a stub, as text.
type StubArg struct{ Name, Type, Default string }

// decorator is the name of AIter's decorator for functions in libraries.
const decorator = "compile_ops"

// readStubs returns the operators of a Python file, in its order.
func readStubs(file, text string) ([]Operator, error) {
	if !strings.Contains(text, decorator) {
		return nil, nil
	}
	tokens := scanAll(newScanner(text))
	if last := tokens[len(tokens)-1]; last.kind == badToken {
		return nil, &Error{file, last.line, last.text}
	}
	end := tokens[len(tokens)-1]
	r := &stubReader{tokens: append(tokens, end, end, end), constants: map[string]string{}}
	for !r.done() {
		r.constant()
		if !r.at("@") || r.tokens[r.i+1].text != decorator || r.tokens[r.i+2].text != "(" {
			r.skipLine()
			continue
		}
		line := r.tokens[r.i].line
		r.i += 2
		op, err := r.stub()
		if err != "" {
			return nil, &Error{file, line, "@" + decorator + ": " + err}
		}
		op.File, op.Line = file, line
		r.operators = append(r.operators, op)
	}
	return r.operators, nil
}

// stubReader reads the stubs of one file.
type stubReader struct {
	tokens    []token
	i         int
	constants map[string]string
	operators []Operator
}

func (r *stubReader) done() bool { return r.tokens[r.i].kind == endToken }

func (r *stubReader) at(text string) bool {
	t := r.tokens[r.i]
	return t.text == text && (t.kind == signToken || t.kind == nameToken)
}

// skipLine moves to the first token after the logical line.
func (r *stubReader) skipLine() {
	for !r.done() {
		kind := r.tokens[r.i].kind
		r.i++
		if kind == lineToken {
			return
		}
	}
}

// constant records the value of an assignment NAME = "text", for later stubs.
func (r *stubReader) constant() {
	t := r.tokens[r.i:]
	if len(t) > 3 && t[0].kind == nameToken && t[1].text == "=" && t[2].kind == stringToken && t[3].kind == lineToken {
		if v, err := evaluate(t[2].text, nil); err == nil && !v.unknown {
			r.constants[t[0].text] = v.format()
		}
	}
}

// stub reads the arguments of the decorator, other decorators, and the head of the function. problem is "" if it could read them.
func (r *stubReader) stub() (op Operator, problem string) {
	op = Operator{ABI: Torch}
	given, err := r.list()
	if err != "" {
		return op, err
	}
	r.skipLine()
	for r.at("@") {
		r.skipLine()
	}
	if r.at("async") {
		r.i++
	}
	if !r.at("def") {
		return op, "expected a function after the decorator"
	}
	op.Name = r.tokens[r.i+1].text
	if r.i += 2; !r.at("(") {
		return op, "expected the function's arguments"
	}
	params, err := r.list()
	if err != "" {
		return op, err
	}
	op.Function = op.Name
	r.decorated(&op, given)
	for _, p := range params {
		if arg, ok := stubArg(p); ok {
			op.Args = append(op.Args, arg)
		}
	}
	return op, ""
}

// list reads (...) and returns its items, which commas separate.
func (r *stubReader) list() (items [][]token, problem string) {
	depth := 0
	var item []token
	for ; !r.done(); r.i++ {
		t := r.tokens[r.i]
		switch {
		case t.kind == signToken && strings.Contains("([{", t.text):
			if depth++; depth == 1 {
				continue
			}
		case t.kind == signToken && strings.Contains(")]}", t.text):
			if depth--; depth == 0 {
				r.i++
				if len(item) > 0 {
					items = append(items, item)
				}
				return items, ""
			}
		case t.text == "," && depth == 1:
			items, item = append(items, item), nil
			continue
		}
		item = append(item, t)
	}
	return nil, `"(" without ")"`
}

// decorated applies the decorator's arguments: module, fc_name, gen_func, gen_fake, ffi_type, develop.
func (r *stubReader) decorated(op *Operator, given [][]token) {
	position := []string{"_md_name", "fc_name", "gen_func", "gen_fake", "ffi_type", "develop"}
	for i, item := range given {
		name := ""
		if i < len(position) {
			name = position[i]
		}
		if len(item) > 2 && item[0].kind == nameToken && item[1].text == "=" {
			name, item = item[0].text, item[2:]
		}
		v, err := evaluate(join(item), r.constants)
		if err != nil || v.unknown {
			continue
		}
		switch name {
		case "_md_name":
			op.Module = v.format()
		case "fc_name":
			if v.v != nil {
				op.Function = v.format()
			}
		case "ffi_type":
			if v.format() == "ctypes" {
				op.ABI = CTypes
			}
		case "develop":
			if v.truth() && op.ABI == Torch {
				op.ABI = Tensors
			}
		}
	}
}

// stubArg splits "name: type = default"; ok is false for *, / and starred arguments.
func stubArg(item []token) (arg StubArg, ok bool) {
	if len(item) == 0 || item[0].kind != nameToken {
		return arg, false
	}
	arg.Name = item[0].text
	part, depth := &arg.Name, 0
	var text []token
	flush := func() {
		if part != &arg.Name {
			*part = join(text)
		}
		text = nil
	}
	for _, t := range item[1:] {
		switch {
		case t.kind == signToken && strings.Contains("([{", t.text):
			depth++
		case t.kind == signToken && strings.Contains(")]}", t.text):
			depth--
		case t.text == ":" && depth == 0 && part == &arg.Name:
			flush()
			part = &arg.Type
			continue
		case t.text == "=" && depth == 0 && t.kind == signToken:
			flush()
			part = &arg.Default
			continue
		}
		text = append(text, t)
	}
	flush()
	return arg, true
}

// join returns tokens as text, with a space between words and around "|".
func join(list []token) string {
	var b strings.Builder
	for i, t := range list {
		word := t.kind == nameToken || t.kind == numberToken || t.kind == stringToken
		before := i > 0 && (list[i-1].kind == nameToken || list[i-1].kind == numberToken || list[i-1].kind == stringToken)
		if word && before || t.text == "|" || i > 0 && list[i-1].text == "|" {
			b.WriteByte(' ')
		}
		b.WriteString(t.text)
	}
	return b.String()
}
