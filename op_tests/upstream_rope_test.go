//go:build linux

package optests_test

import (
	"math"
	"math/rand/v2"
	"strings"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// ropeModules declares AIter's rope modules, which have one operator each.
func ropeModules() []upstreamModule {
	var list []upstreamModule
	for module, op := range map[string]string{
		"1c_uncached_fwd": "rope_fwd_impl", "1c_uncached_bwd": "rope_bwd_impl", "2c_uncached_fwd": "rope_2c_fwd_impl",
		"2c_uncached_bwd": "rope_2c_bwd_impl", "1c_cached_fwd": "rope_cached_fwd_impl", "1c_cached_bwd": "rope_cached_bwd_impl",
		"2c_cached_fwd": "rope_cached_2c_fwd_impl", "2c_cached_bwd": "rope_cached_2c_bwd_impl",
		"1c_cached_positions_fwd": "rope_cached_positions_fwd_impl", "2c_cached_positions_fwd": "rope_cached_positions_2c_fwd_impl",
		"1c_cached_positions_offsets_fwd": "rope_cached_positions_offsets_fwd_impl",
		"2c_cached_positions_offsets_fwd": "rope_cached_positions_offsets_2c_fwd_impl", "1c_thd_fwd": "rope_thd_fwd_impl",
		"1c_thd_bwd": "rope_thd_bwd_impl", "1c_2d_fwd": "rope_2d_fwd_impl", "1c_2d_bwd": "rope_2d_bwd_impl",
	} {
		r := ropeOf(module)
		list = append(list, upstreamModule{name: "module_aiter_rope_" + module,
			ops: []optests.Operator{{Name: "aiter_" + op, Cases: r.cases(), Reference: r.reference}}})
	}
	return list
}

// rope describes an operator of a rope module.
type rope struct {
	in, out            string   // the names of its tensors
	channels           []string // suffixes of the names
	cached, thd, image bool
	positions, offsets bool
	backward           bool
}

func ropeOf(module string) rope {
	r := rope{in: "input", out: "output", channels: []string{""}, cached: !strings.Contains(module, "uncached"),
		thd: strings.Contains(module, "thd"), image: strings.Contains(module, "2d"), positions: strings.Contains(module, "positions"),
		offsets: strings.Contains(module, "offsets"), backward: strings.HasSuffix(module, "bwd")}
	if r.thd {
		r.cached = false
	}
	if r.backward {
		r.in, r.out = "output_grads", "input_grads"
	}
	if strings.HasPrefix(module, "2c") {
		r.channels = []string{"_x", "_y"}
	}
	return r
}

func (r rope) cases() []optests.Call {
	var list []optests.Call
	for n := range 6 {
		dt := []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16}[n%3]
		table := dt
		if n > 3 {
			table = tensor.Float32
		}
		of := func(dt tensor.DType, shape ...int64) optests.TensorArg {
			return optests.TensorArg{DType: dt, Shape: shape}
		}
		const s, b, h, d = 3, 2, 2, 16
		reuse, rotated := n&2 != 0 && !r.image, int64(12)
		if n == 3 || r.image {
			rotated = d
		}
		width := rotated
		if reuse {
			width /= 2
		}
		args := map[string]any{"rotate_style": n & 1, "reuse_freqs_front_part": reuse, "nope_first": n == 1 || n == 2 || n == 5}
		for i, c := range r.channels {
			shape := []int64{s, b, h + int64(i), d}
			switch {
			case r.thd:
				shape = []int64{5, h, d}
			case r.image:
				shape = []int64{b, 6, h, d}
			}
			args[r.in+c], args[r.out+c] = of(dt, shape...), of(dt, shape...)
		}
		rows := int64(s)
		if r.positions {
			rows = 7
			args["positions"] = ints64(0, 6, 3, 1, 2, 5)
			if r.offsets {
				args["positions"], args["offsets"] = ints64(0, 4, 3, 1, 2, 5), ints64(1, 2, 3, 0, -1, 1)
			}
		}
		switch {
		case r.image:
			args["img_height"], args["img_width"] = 2, 3
			args["cos_h"], args["sin_h"] = of(table, 1, 3, 1, d/2), of(table, 1, 3, 1, d/2)
			args["cos_w"], args["sin_w"] = of(table, 1, 1, 4, d/2), of(table, 1, 1, 4, d/2)
		case r.cached:
			args["cos"], args["sin"] = of(table, rows, 1, 1, width), of(table, rows, 1, 1, width)
		default:
			args["freqs"] = of(table, rows, 1, 1, width)
		}
		if r.thd {
			args["cu_seqlens"] = numbers(tensor.Int32, 0, 2, 5)
			in := args[r.in].(optests.TensorArg) // of 5 tokens: no check finds sequences that end behind the tensors
			in.Fill = normals(elements(in.Shape))
			args[r.in] = in
		}
		list = append(list, optests.Call{Args: args, Seed: uint64(n)})
	}
	return list
}

func set64(v ...float64) func(*rand.Rand, []float64) {
	return func(_ *rand.Rand, values []float64) { copy(values, v) }
}

// ints64 are indices of shape (3, 2).
func ints64(v ...float64) optests.TensorArg {
	return optests.TensorArg{DType: tensor.Int64, Shape: []int64{3, 2}, Fill: set64(v...)}
}

func (r rope) reference(in optests.Inputs) map[string][]float64 {
	want := map[string][]float64{}
	reuse := in.Call.Args["reuse_freqs_front_part"].(bool)
	for _, c := range r.channels {
		x, shape := in.Values[r.in+c], in.Shape(r.in+c)
		d := int(shape[len(shape)-1])
		heads := int(shape[len(shape)-2])
		out := make([]float64, len(x))
		for head := range len(x) / d {
			token := head / heads
			from, to := x[head*d:][:d], out[head*d:][:d]
			if r.image {
				at, width := token%int(shape[1]), in.Call.Args["img_width"].(int)
				r.rotate(to[:d/2], from[:d/2], tableRow(in, "_h", at/width), d/2, in.Call)
				r.rotate(to[d/2:], from[d/2:], tableRow(in, "_w", at%width), d/2, in.Call)
				continue
			}
			row, table := 0, "freqs"
			switch {
			case r.thd:
				for start := range in.Values["cu_seqlens"][1:] {
					if first := int(in.Values["cu_seqlens"][start]); token >= first {
						row = token - first
					}
				}
			case r.positions:
				row = int(in.Values["positions"][token])
				if r.offsets {
					row += int(in.Values["offsets"][token])
				}
			default:
				row = token / int(shape[1])
			}
			if r.cached {
				table = "cos"
			}
			rotated := int(in.Shape(table)[3])
			if reuse {
				rotated *= 2
			}
			r.rotate(to, from, tableRow(in, "", row), rotated, in.Call)
		}
		want[r.out+c] = out
	}
	return want
}

// tableRow returns the cosines and the sines of a row of the tables.
func tableRow(in optests.Inputs, suffix string, row int) (cosSin [2][]float64) {
	if freqs := in.Values["freqs"]; freqs != nil {
		n := int(in.Shape("freqs")[3])
		for _, v := range freqs[row*n:][:n] {
			cosSin[0], cosSin[1] = append(cosSin[0], math.Cos(v)), append(cosSin[1], math.Sin(v))
		}
		return cosSin
	}
	n := int(in.Shape("cos" + suffix)[3])
	return [2][]float64{in.Values["cos"+suffix][row*n:][:n], in.Values["sin"+suffix][row*n:][:n]}
}

// rotate rotates the first or the last elements of a head, and copies the others. The gradient has the transposed matrix.
func (r rope) rotate(to, from []float64, table [2][]float64, rotated int, c optests.Call) {
	copy(to, from)
	start := 0
	if c.Args["nope_first"].(bool) {
		start = len(from) - rotated
	}
	for i := range rotated / 2 {
		a, b := i, i+rotated/2
		if c.Args["rotate_style"] == 1 {
			a, b = 2*i, 2*i+1
		}
		p, q := a, b
		if c.Args["reuse_freqs_front_part"].(bool) {
			p, q = i, i
		}
		cosA, sinA, cosB, sinB := table[0][p], table[1][p], table[0][q], table[1][q]
		u, v := from[start+a], from[start+b]
		if r.backward {
			sinA, sinB = -sinB, -sinA
		}
		to[start+a], to[start+b] = u*cosA-v*sinA, v*cosB+u*sinB
	}
}
