package ffi

import (
	"structs"
	"unsafe"
)

// Params are the launch parameters of a call: struct LaunchParams of csrc/include/aiter/tuning.h. They do not change.
type Params struct {
	_     structs.HostLayout
	count int64
	list  *cParam
	read  *byte // nil, or one byte for each parameter; a call that reads the parameter sets it
}

// cParam is struct LaunchParam.
type cParam struct {
	_     structs.HostLayout
	name  *byte // ends with a NUL byte
	value int64
}

// Param is a launch parameter with its value.
type Param struct {
	Name  string
	Value int64
}

// NewParams returns launch parameters for [Func.With], nil for none.
func NewParams(list ...Param) *Params {
	if len(list) == 0 {
		return nil
	}
	c := make([]cParam, len(list))
	for i, p := range list {
		c[i] = cParam{name: unsafe.SliceData(append([]byte(p.Name), 0)), value: p.Value}
	}
	return &Params{count: int64(len(c)), list: unsafe.SliceData(c)}
}

// Recording returns a copy of the launch parameters, and a function that reports whether a call with the copy has read the i-th
// parameter of NewParams.
func (p *Params) Recording() (*Params, func(i int) bool) {
	r, read := *p, make([]byte, p.count)
	r.read = unsafe.SliceData(read)
	return &r, func(i int) bool { return read[i] != 0 }
}
