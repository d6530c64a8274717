// Package optests tests operators against float64 references written in Go.
//
// A [Case] holds a problem's element types, memory placement, sizes and options.
// [Generate] makes a [Problem] of it: random inputs, and outputs filled with a
// poison value between canary bytes. A [Runner] copies the problem to a device,
// calls the operator and compares every output with the reference.
// [FromTensors] makes a problem from tensors that the caller supplies.
//
// Operators with the same sizes and options form a family. A family is a struct
// of those sizes and options in [Case], such as [Conv1d], and one declaration for
// each operator: arguments with shapes, types and values, reference, tolerances.
package optests
