package aiterops

import (
	"math"
	"slices"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// normalized is RMSNorm of rows, after the addition of a residual if there is one.
func normalized(in optests.Inputs) map[string][]float64 {
	x, weight := slices.Clone(in.Values["input"]), in.Values["weight"]
	residual := in.Values["residual"]
	if residual == nil {
		residual = in.Values["residual_in"]
	}
	for i := range residual {
		x[i] += residual[i]
	}
	out, gemma := slices.Clone(x), 0.0
	if in.Call.Args["gemma_norm"] == true {
		gemma = 1
	}
	for row := range slices.Chunk(out, max(1, len(weight))) {
		sum := 0.0
		for _, v := range row {
			sum += v * v
		}
		for i := range row {
			row[i] *= (weight[i] + gemma) / math.Sqrt(sum/float64(len(row))+in.Call.Args["epsilon"].(float64))
		}
	}
	return map[string][]float64{"out": out, "input": out, "residual": x, "residual_out": x}
}

// normalizedAndQuantized divides the elements of groups of a normalized row by a scale, with which the largest is that of the 8-bit type.
func normalizedAndQuantized(in optests.Inputs) map[string][]float64 {
	want := normalized(in)
	out, scale := in.Call.Args["out"].(optests.TensorArg), in.Call.Args["scale"].(optests.TensorArg)
	rows, columns := int(in.Shape("input")[0]), int(in.Shape("input")[1])
	group, _ := in.Call.Args["group_size"].(int)
	bits := scale.DType == tensor.UInt8 // of a power of 2
	powers, shuffle := bits || scale.DType == tensor.Float8E8M0FNU, in.Call.Args["shuffle_scale"] == true && group > 0
	if group == 0 {
		group = columns
	}
	groups := columns / group
	values, scales := slices.Clone(want["out"]), make([]float64, rows*groups)
	for i := range rows * groups {
		part, row, column := values[i*group:][:group], i/groups, i%groups
		s := max(largest(part), 1e-10) / largest8Bit[out.DType] // as AIter's kernel
		kept := s
		if powers {
			exponent := math.Ceil(math.Log2(s))
			s = math.Exp2(exponent)
			if kept = s; bits {
				kept = exponent + 127
			}
		}
		for j := range part {
			part[j] /= s
		}
		at := i
		if shuffle && powers && group == 32 {
			tile := (row/32*(groups/8) + column/8) * 256
			at = tile + column%4*64 + row%16*4 + column%8/4*2 + row%32/16
		} else if shuffle {
			at = column*rows + row
		}
		scales[at] = kept
	}
	return map[string][]float64{"out": values, "scale": scales, "residual_out": want["residual_out"]}
}

// normTolerance is that of 8-bit results, and that of sums for the residual.
func normTolerance(name string, dt tensor.DType) optests.Tolerance {
	switch {
	case name == "scale" && dt.IsFloat() && dt.Size() > 1:
		return optests.Tolerance{Rel: 1e-4}
	case name == "scale":
		return optests.Tolerance{}
	case name == "residual_out":
		return optests.Tolerance{Rel: 1.0 / (1 << 7), Abs: 1e-6} // not rounded to the nearest in bfloat16
	case dt == tensor.Int8:
		return optests.Tolerance{Abs: 1.001} // 126.999 is 126
	}
	return QuantTolerance(name, dt)
}

// QuantTolerance allows the rounding to 8 bits, of a quotient that is off in its last bit.
func QuantTolerance(_ string, dt tensor.DType) optests.Tolerance {
	switch dt {
	case tensor.Float8E4M3FN, tensor.Float8E4M3FNUZ:
		return optests.Tolerance{Rel: 1.001 / (1 << 4), Abs: 1.0 / (1 << 10)}
	case tensor.Int8:
		return optests.Tolerance{Abs: 1}
	}
	return optests.Tolerance{Rel: 1e-5}
}

var largest8Bit = map[tensor.DType]float64{tensor.Float8E4M3FNUZ: 240, tensor.Float8E4M3FN: 448, tensor.Int8: 127}

// largest returns the largest absolute value.
func largest(x []float64) float64 {
	most := 0.0
	for _, v := range x {
		most = max(most, math.Abs(v))
	}
	return most
}

// quantized divides by a scale: the given one, or that of the largest element of the tensor or of a row. With zeros alone the scale is 0,
// and AIter leaves the quotients undefined: out is then not compared.
func quantized(name string, dynamic bool) func(optests.Inputs) map[string][]float64 {
	return func(in optests.Inputs) map[string][]float64 {
		most := largest8Bit[in.Call.Args["out"].(optests.TensorArg).DType]
		x, group := in.Values["input"], len(in.Values["input"])
		if shape := in.Shape("input"); name == "scales" {
			group = int(shape[len(shape)-1])
		}
		used := len(x) // rows from num_rows * num_rows_factor on keep their values
		if n := in.Values["num_rows"]; n != nil {
			used = min(used, int(n[0])*in.Call.Args["num_rows_factor"].(int)*group)
		}
		var out, scales []float64
		for part := range slices.Chunk(x[:used], max(1, group)) {
			scale := 0.0
			if dynamic {
				scale = largest(part) / most // AIter's kernels do not read scale_ub
				scales = append(scales, scale)
			} else {
				scale = in.Values[name][0]
			}
			for _, v := range part {
				out = append(out, max(-most, min(v/scale, most)))
			}
		}
		if used < len(x) {
			out, scales = append(out, in.Values["out"][used:]...), append(scales, in.Values[name][used/group:]...)
		}
		want := map[string][]float64{"out": out}
		if dynamic {
			want[name] = scales
		}
		if slices.Contains(scales, 0) {
			delete(want, "out")
		}
		return want
	}
}
