package registry

import (
	"strings"

	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// Float8E4M3 returns the e4m3 type that the matrix units of a target have: float8_e4m3fnuz on gfx940 to gfx942, else float8_e4m3fn.
func Float8E4M3(t target.Target) tensor.DType {
	if t.Vendor() == target.HIP && strings.HasPrefix(t.Arch(), "gfx94") {
		return tensor.Float8E4M3FNUZ
	}
	return tensor.Float8E4M3FN
}
