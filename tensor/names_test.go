package tensor_test

import (
	"errors"
	"testing"

	"github.com/aiter-go/aiter/tensor"
)

func TestParseDType(t *testing.T) {
	for _, dt := range tensor.DTypes() {
		if got, err := tensor.ParseDType(dt.String()); err != nil || got != dt {
			t.Errorf("ParseDType(%q) = %v, %v", dt.String(), got, err)
		}
		if tensor.MakeDType(dt.Code(), dt.Bits(), dt.Lanes()) != dt || dt.Size() != int64(dt.Bits())/8 {
			t.Errorf("%s: code %d, bits %d, lanes %d, size %d", dt, dt.Code(), dt.Bits(), dt.Lanes(), dt.Size())
		}
	}
	for s, want := range map[string]tensor.DType{
		"fp32": tensor.Float32, "F32": tensor.Float32, "fp16": tensor.Float16, "half": tensor.Float16, "bf16": tensor.BFloat16,
		" torch.bfloat16 ": tensor.BFloat16, "double": tensor.Float64, "float": tensor.Float32, "i32": tensor.Int32, "u8": tensor.UInt8,
		"long": tensor.Int64,
	} {
		if got, err := tensor.ParseDType(s); err != nil || got != want {
			t.Errorf("ParseDType(%q) = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "float8", "f128", "i7", "bfloat", "u"} {
		got, err := tensor.ParseDType(s)
		var de *tensor.DTypeError
		if !errors.As(err, &de) || de.Input != s {
			t.Errorf("ParseDType(%q) = %v, %v", s, got, err)
		}
	}
	if !tensor.BFloat16.IsFloat() || !tensor.Float16.IsFloat() || tensor.Int32.IsFloat() || tensor.Bool.IsFloat() {
		t.Error("IsFloat")
	}
}

func TestParseDevice(t *testing.T) {
	for s, want := range map[string]tensor.Device{
		"cpu": tensor.Host(), "cuda": {Type: tensor.CUDA}, "cuda:3": {Type: tensor.CUDA, ID: 3},
		"ROCM:1": {Type: tensor.ROCM, ID: 1}, "hip:2": {Type: tensor.ROCM, ID: 2},
	} {
		got, err := tensor.ParseDevice(s)
		if err != nil || got != want {
			t.Errorf("ParseDevice(%q) = %v, %v", s, got, err)
		}
		if back, err := tensor.ParseDevice(got.String()); err != nil || back != got {
			t.Errorf("%s does not come back: %v, %v", got, back, err)
		}
	}
	for _, s := range []string{"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:99999999999", ":1"} {
		var de *tensor.DeviceError
		if got, err := tensor.ParseDevice(s); !errors.As(err, &de) {
			t.Errorf("ParseDevice(%q) = %v, %v", s, got, err)
		}
	}
	if got := (tensor.Device{Type: 12, ID: 1}).String(); got != "device12:1" {
		t.Errorf("an unknown type prints as %q", got)
	}
}
