package tensor

import (
	"cmp"
	"slices"
)

// searchBudget is the largest number of steps of a search in Overlaps and OverlapsItself. Views made by slicing need a few dozen.
// After more steps the functions return true.
const searchBudget = 10000

// Overlaps reports whether a and b have a byte in common. It is exact for views of dense tensors that
// Slice, Transpose and Permute return. For other strides it may return true for disjoint views.
func Overlaps(a, b *Tensor) bool {
	if a.Device() != b.Device() || a.numel == 0 || b.numel == 0 || a.Ptr() == 0 || b.Ptr() == 0 {
		return false
	}
	if !rangesMeet(a, b) {
		return false
	}
	terms := append(a.terms(1), b.terms(-1)...)
	terms = append(terms, term{1, 1 - b.DType().Size(), a.DType().Size() - 1})
	terms = mergeTerms(terms)
	budget := searchBudget
	return reachable(int64(b.Ptr()-a.Ptr()), terms, &budget)
}

// OverlapsItself reports whether two elements of t share memory: whether the strides give different indices the same offset. It is
// exact for views of dense tensors that Slice, Transpose and Permute return. For other strides it may return true without such elements.
func OverlapsItself(t *Tensor) bool {
	if t.numel == 0 {
		return false
	}
	for lead, n := range t.shape { // the first index that differs
		if n == 1 {
			continue
		}
		step := max(t.strides[lead], -t.strides[lead])
		if step == 0 {
			return true
		}
		terms := []term{{step, 0, n - 2}}
		for i := lead + 1; i < len(t.shape); i++ {
			if s := max(t.strides[i], -t.strides[i]); s != 0 { // a later lead finds a stride of 0
				terms = append(terms, term{s, 1 - t.shape[i], t.shape[i] - 1})
			}
		}
		budget := searchBudget
		if reachable(-step, mergeTerms(terms), &budget) {
			return true
		}
	}
	return false
}

// rangesMeet reports whether the address ranges of the tensors have a byte in common.
func rangesMeet(a, b *Tensor) bool {
	return a.storage.ptr+uintptr(a.low) < b.storage.ptr+uintptr(b.end) &&
		b.storage.ptr+uintptr(b.low) < a.storage.ptr+uintptr(a.end)
}

// term is the set of numbers step*k for k from low to high; step is positive.
type term struct{ step, low, high int64 }

// terms returns one term for each dimension. The sums of numbers of the terms are the byte offsets of the
// elements of t from element 0, times sign (1 or -1).
func (t *Tensor) terms(sign int64) []term {
	var out []term
	for i, n := range t.shape {
		step := sign * t.strides[i] * t.DType().Size()
		switch {
		case n == 1 || step == 0:
		case step > 0:
			out = append(out, term{step, 0, n - 1})
		default:
			out = append(out, term{-step, 1 - n, 0})
		}
	}
	return out
}

// mergeTerms joins terms of equal step and sorts by decreasing step.
func mergeTerms(terms []term) []term {
	slices.SortFunc(terms, func(x, y term) int { return cmp.Compare(y.step, x.step) })
	out := terms[:1]
	for _, t := range terms[1:] {
		if last := &out[len(out)-1]; last.step == t.step {
			last.low, last.high = last.low+t.low, last.high+t.high
			continue
		}
		out = append(out, t)
	}
	return out
}

// reachable reports whether numbers of the terms, one of each, can add up to sum. It returns true if
// the budget does not suffice.
func reachable(sum int64, terms []term, budget *int) bool {
	if *budget--; *budget < 0 {
		return true
	}
	if len(terms) == 0 {
		return sum == 0
	}
	first, rest := terms[0], terms[1:]
	restLow, restHigh := limits(rest)
	from := max(first.low, ceilDiv(sum-restHigh, first.step))
	to := min(first.high, floorDiv(sum-restLow, first.step))
	for k := from; k <= to; k++ {
		if reachable(sum-k*first.step, rest, budget) {
			return true
		}
	}
	return false
}

// limits returns the smallest and the largest sum of the terms.
func limits(terms []term) (low, high int64) {
	for _, t := range terms {
		low, high = low+t.step*t.low, high+t.step*t.high
	}
	return low, high
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func ceilDiv(a, b int64) int64 { return -floorDiv(-a, b) }
