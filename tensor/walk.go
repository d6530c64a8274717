package tensor

// rows visits the elements in row-major order, one row of the last dimension at a time. first is
// the position of the row's first element in the storage, n the length of the row, and
// step its stride, all in elements. A tensor without dimensions has one row of one
// element.
func (t *Tensor) rows(visit func(first, n, step int64)) {
	if t.numel == 0 {
		return
	}
	last := len(t.shape) - 1
	if last < 0 {
		visit(t.offset, 1, 1)
		return
	}
	index := make([]int64, last)
	first := t.offset
	for {
		visit(first, t.shape[last], t.strides[last])
		dim := last - 1
		for ; dim >= 0; dim-- {
			index[dim]++
			first += t.strides[dim]
			if index[dim] < t.shape[dim] {
				break
			}
			first -= index[dim] * t.strides[dim]
			index[dim] = 0
		}
		if dim < 0 {
			return
		}
	}
}

// gather converts the elements of t, whose storage is mem, to out in row-major order.
func gather[From, To any](t *Tensor, mem []From, out []To, convert func(From) To) {
	next := 0
	t.rows(func(first, n, step int64) {
		for i := range n {
			out[next] = convert(mem[first+i*step])
			next++
		}
	})
}

// scatter converts values to the elements of t, whose storage is mem.
func scatter[From, To any](t *Tensor, mem []To, values []From, convert func(From) To) {
	next := 0
	t.rows(func(first, n, step int64) {
		for i := range n {
			mem[first+i*step] = convert(values[next])
			next++
		}
	})
}

func same[T any](v T) T              { return v }
func widen[T Number](v T) float64    { return float64(v) }
func narrowTo[T Number](v float64) T { return T(v) }
func widenF16(v F16) float64         { return float64(v.Float32()) }
func widenBF16(v BF16) float64       { return float64(v.Float32()) }
func widenBool(v uint8) float64      { return float64(min(v, 1)) }
func readAs[T Number](t *Tensor, mem []byte, out []float64) {
	gather(t, elements[T](mem), out, widen[T])
}
func writeAs[T Number](t *Tensor, mem []byte, values []float64) {
	scatter(t, elements[T](mem), values, narrowTo[T])
}

// read converts all elements to float64. The type is one of DTypes or Float8DTypes.
func (t *Tensor) read(mem []byte, out []float64) {
	switch t.DType() {
	case Float16:
		gather(t, elements[F16](mem), out, widenF16)
	case BFloat16:
		gather(t, elements[BF16](mem), out, widenBF16)
	case Float32:
		readAs[float32](t, mem, out)
	case Float64:
		readAs[float64](t, mem, out)
	case Bool:
		gather(t, mem, out, widenBool)
	case Float8E4M3FN, Float8E4M3FNUZ, Float8E5M2, Float8E8M0FNU:
		gather(t, mem, out, func(code uint8) float64 { return float64(F8ToF32(t.DType(), code)) })
	default:
		t.readInts(mem, out)
	}
}

func (t *Tensor) readInts(mem []byte, out []float64) {
	switch t.DType() {
	case Int8:
		readAs[int8](t, mem, out)
	case Int16:
		readAs[int16](t, mem, out)
	case Int32:
		readAs[int32](t, mem, out)
	case Int64:
		readAs[int64](t, mem, out)
	case UInt8:
		readAs[uint8](t, mem, out)
	case UInt16:
		readAs[uint16](t, mem, out)
	case UInt32:
		readAs[uint32](t, mem, out)
	case UInt64:
		readAs[uint64](t, mem, out)
	}
}

// write rounds all values to the type, which is one of DTypes or Float8DTypes. An integer type must be able to represent the
// values; see checkWhole.
func (t *Tensor) write(mem []byte, values []float64) {
	switch t.DType() {
	case Float16:
		scatter(t, elements[F16](mem), values, F64ToF16)
	case BFloat16:
		scatter(t, elements[BF16](mem), values, F64ToBF16)
	case Float32:
		writeAs[float32](t, mem, values)
	case Float64:
		writeAs[float64](t, mem, values)
	case Bool:
		writeAs[uint8](t, mem, values)
	case Float8E4M3FN, Float8E4M3FNUZ, Float8E5M2, Float8E8M0FNU:
		scatter(t, mem, values, func(v float64) uint8 { return F64ToF8(t.DType(), v) })
	default:
		t.writeInts(mem, values)
	}
}

func (t *Tensor) writeInts(mem []byte, values []float64) {
	switch t.DType() {
	case Int8:
		writeAs[int8](t, mem, values)
	case Int16:
		writeAs[int16](t, mem, values)
	case Int32:
		writeAs[int32](t, mem, values)
	case Int64:
		writeAs[int64](t, mem, values)
	case UInt8:
		writeAs[uint8](t, mem, values)
	case UInt16:
		writeAs[uint16](t, mem, values)
	case UInt32:
		writeAs[uint32](t, mem, values)
	case UInt64:
		writeAs[uint64](t, mem, values)
	}
}
