package registry

import (
	"context"

	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/internal/hostcall"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// CallPieces makes a call of CallHost on the CPU in pieces, with copies of all arguments. CallHost itself does the same as Call there.
func (o *Op) CallPieces(ctx context.Context, opts HostOptions, args ...any) error {
	return o.callPieces(ctx, opts, args, nil)
}

// CallPiecesReturning makes a call of CallHostReturning on the CPU.
func (o *Op) CallPiecesReturning(ctx context.Context, opts HostOptions, args ...any) (any, error) {
	return o.current().returning(func(result *ffi.Any) error { return o.callPieces(ctx, opts, args, result) })
}

func (o *Op) callPieces(ctx context.Context, opts HostOptions, args []any, result *ffi.Any) error {
	drv, err := o.reg.devices.Driver(tensor.CPU)
	if err != nil {
		return err
	}
	pool, err := drv.NewPool(0, opts.Pool)
	if err != nil {
		return err
	}
	o.reg.mu.Lock()
	o.reg.hosts[tensor.Host()] = hostcall.New(drv, pool, hostcall.Options{Piece: opts.Piece, Buffers: opts.Buffers, Calls: opts.Calls})
	o.reg.mu.Unlock()
	return o.current().callHost(ctx, tensor.Host(), args, nil, nil, result)
}

// Axes returns the numbers of units of the axes along which a call of CallHost may be split.
func (o *Op) Axes(args ...any) []int64 { return o.current().hostCall(args, true).Units }

// ClassOf returns the code of the shape class of arguments, ClassWords its words.
func ClassOf(o *Op, args ...any) string {
	code, _ := classOf(o, args)
	return code
}

func ClassWords(o *Op, args ...any) string {
	_, words := classOf(o, args)
	return words
}

func classOf(o *Op, args []any) (code, words string) {
	buffer, v := new(callBuffer), o.current()
	if _, err := v.pack(buffer, args); err != nil {
		panic(err)
	}
	return string(appendClass(nil, buffer.packed, args)), classWords(v.decl.Schema, buffer.packed, args)
}

// MarkReady marks the whole module of the operator for a target, and the support library, as built and loaded.
func (o *Op) MarkReady(t target.Target) {
	o.reg.ready.Store(o.current().whole(t), struct{}{})
	o.reg.ready.Store(settings.SupportRequest(), struct{}{})
}

// PartOf returns the name of the part that a call on a target needs.
func (o *Op) PartOf(t target.Target, args ...any) (string, error) {
	v := o.current()
	req, err := v.request(t, v.key(args))
	return req.Part.String(), err
}
