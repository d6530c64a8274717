// Package ffi calls operators through the TVM FFI C ABI: it loads the support library and modules,
// packs arguments, and converts raised errors to Go errors.
//
// A call is one C function call: the support library's trampoline sets the stream, calls the
// operator and collects its error on one OS thread, because both streams and raised errors belong
// to a thread.
package ffi
