// Package optests is the operators' own test bench: what each operator should
// compute, the inputs to try it with, and how near is near enough.
//
// A [Case] names a problem's sizes, types and options. [Generate] turns it into
// a [Problem]: random inputs, outputs poisoned and fenced with canaries. A
// [Runner] carries the problem to a device, calls the operator and checks what
// came back against a float64 reference written from the formulas alone.
// [FromTensors] makes the same kind of problem from tensors a person supplies.
//
// Each operator is one declaration in one file (its arguments, their shapes,
// types and contents, its reference) and one line in the list of operators.
package optests
