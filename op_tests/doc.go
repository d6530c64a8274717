// Package optests tests operators against float64 references written in Go.
//
// A [Case] holds a problem's element types, memory placement, sizes and options.
// [Generate] makes a [Problem] of it: random inputs, and outputs filled with a
// poison value between canary bytes. A [Runner] copies the problem to a device,
// calls the operator and compares every output with the reference.
// [FromTensors] makes a problem from tensors that the caller supplies.
//
// An [Operator] declares an operator of any module for [Run] and [Bench]: cases, a reference
// and tolerances.
//
// Operators with the same sizes and options form a family. A family is a struct of
// those sizes and options, such as [Conv1d], which a [Case] holds as its [Params];
// their declaration as a list of [Param], from which the commands derive flags and
// columns; and one declaration for each operator: arguments with shapes, types and
// values, reference, tolerances.
package optests
