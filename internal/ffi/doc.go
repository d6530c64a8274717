// Package ffi calls operators through the TVM FFI C ABI: it loads the support library and modules,
// packs arguments, and converts raised errors to Go errors.
//
// A call is one C function call. Streams and raised errors are state of an OS thread, so one function
// of the support library, the trampoline, sets the stream, calls the operator and fetches its error.
package ffi
