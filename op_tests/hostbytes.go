package optests

import "math"

// Use is the purpose of a problem.
type Use int

const (
	ForTiming     Use = iota // [Declaration.GenerateForTiming]
	ForCalls                 // [Generate]
	ForComparison            // [Generate], and Check against the reference
)

// HostBytes returns the least number of bytes of host memory that a problem of the case
// takes; the device does not matter. The error is a *CaseError.
func (d Declaration) HostBytes(c Case, use Use) (int64, error) {
	decl, c, err := d.op.prepare(c)
	if err != nil {
		return 0, err
	}
	total, largest := 0.0, 0.0
	for _, a := range decl.args {
		if a.role == option || !a.isPassed(c) {
			continue
		}
		bytes, doubles := a.hostBytes(c)
		total += bytes
		largest = max(largest, doubles)
		if use == ForComparison {
			total += doubles // the reference reads and writes float64
		}
	}
	if use == ForCalls {
		total += largest // inputs are made in float64, one after another
	}
	if total >= math.MaxInt64 {
		return math.MaxInt64, nil
	}
	return int64(total), nil
}

// hostBytes returns the bytes of the argument's storage and of its elements as float64.
func (a argument) hostBytes(c Case) (bytes, doubles float64) {
	elements, extent := 1.0, 1.0
	for _, size := range a.shape(c) {
		elements *= float64(size)
		extent *= float64(max(size, 1)) // as storageLayout counts
	}
	const exact = 1 << 40 // elements with which no product of storageLayout overflows
	if extent > exact {
		return extent * float64(a.dtype(c).Size()), 8 * elements
	}
	return float64(a.storageLayout(c).bytes), 8 * elements
}
