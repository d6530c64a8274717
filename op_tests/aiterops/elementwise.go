package aiterops

import (
	"math"
	"slices"

	optests "github.com/aiter-go/aiter/op_tests"
)

func sigmoid(v float64) float64 { return 1 / (1 + math.Exp(-v)) }

func tanh(v float64) float64 { return math.Tanh(v) }

func gelu(v float64) float64 { return v / 2 * (1 + math.Erf(v/math.Sqrt2)) }

func geluTanh(v float64) float64 {
	return v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
}

func siluAndMul(x, gate float64) float64 { return x * sigmoid(x) * gate }

func geluAndMul(x, gate float64) float64 { return gelu(x) * gate }

func geluTanhAndMul(x, gate float64) float64 { return geluTanh(x) * gate }

func swigluAndMul(x, gate float64) float64 {
	x, gate = min(x, 7), max(-7, min(gate, 7))
	return x * sigmoid(1.702*x) * (gate + 1)
}

func each(f func(float64) float64) func(optests.Inputs) map[string][]float64 {
	return func(in optests.Inputs) map[string][]float64 {
		out := slices.Clone(in.Values["input"])
		for i := range out {
			out[i] = f(out[i])
		}
		return map[string][]float64{"out": out}
	}
}

// gated applies f to the halves of each row, after the addition of the bias of the row's expert. Rows of no expert are 0.
func gated(f func(x, gate float64) float64) func(optests.Inputs) map[string][]float64 {
	return func(in optests.Inputs) map[string][]float64 {
		shape := in.Shape("out")
		d := int(shape[len(shape)-1])
		limit, _ := in.Call.Args["limit"].(float64)
		var out []float64
		for row := range len(in.Values["input"]) / max(1, 2*d) {
			x := slices.Clone(in.Values["input"][row*2*d:][:2*d])
			expert := 0
			if ids := in.Values["expert_ids"]; ids != nil {
				if expert = int(ids[row]); expert >= 0 {
					for i := range x {
						x[i] += in.Values["bias"][expert*2*d+i]
					}
				}
			}
			for i := range d {
				u, v := x[i], x[d+i]
				if limit > 0 {
					u, v = min(u, limit), max(-limit, min(v, limit))
				}
				if expert < 0 {
					out = append(out, 0)
				} else {
					out = append(out, f(u, v))
				}
			}
		}
		return map[string][]float64{"out": out}
	}
}

// rotated rotates pairs of the elements of a head by the angle of the token's position.
func rotated(in optests.Inputs) map[string][]float64 {
	neox, last := in.Call.Args["is_neox"] == true, in.Call.Args["is_nope_first"] == true
	size, half := in.Call.Args["head_size"].(int), int(in.Shape("cos_cache")[1])
	want := map[string][]float64{}
	for _, name := range []string{"query", "key"} {
		out, width := slices.Clone(in.Values[name]), int(in.Shape(name)[1])
		for head := 0; head < len(out); head += size {
			token := head / width
			p := int(in.Values["positions"][token])
			if offsets := in.Values["cos_sin_cache_offsets"]; offsets != nil {
				p += int(offsets[token])
			}
			for i := range half {
				a, b := head+2*i, head+2*i+1
				if neox {
					a, b = head+i, head+i+half
				}
				if last {
					a, b = a+size-2*half, b+size-2*half
				}
				c, s, u, v := in.Values["cos_cache"][p*half+i], in.Values["sin_cache"][p*half+i], out[a], out[b]
				out[a], out[b] = u*c-v*s, v*c+u*s
			}
		}
		want[name] = out
	}
	return want
}
