package opconfig

import (
	"fmt"
	"math"
)

// Tolerance bounds the difference between two correct results a and b of one written argument:
// |a-b| <= Abs + Rel*|b|, in addition to the rounding of their type.
type Tolerance struct {
	Exact    bool // the values must be equal, as for copies
	Rel, Abs float64
}

// tolerances reads an operator's tolerance table. Its keys are the arguments that the schema marks as
// written. tolerances does nothing if the schema is not valid, because that mistake has been reported.
func (d *decoder) tolerances(op *Op, n *node) {
	if n == nil || len(op.Schema.Args) == 0 {
		return
	}
	op.Tolerance = map[string]Tolerance{}
	fields := map[string]func(*node){}
	for _, a := range op.Schema.Args {
		if a.Type.Mutable {
			fields[a.Name] = func(n *node) { op.Tolerance[a.Name] = d.tolerance(n) }
		}
	}
	if len(fields) == 0 {
		d.fail(n.key, "%s has a tolerance, but its schema marks no argument as written; mark outputs as in Tensor(a!) out", op.Name)
		return
	}
	d.table(n, "tolerance of "+op.Name+" (its keys are the written arguments)", fields)
}

// tolerance reads "exact", or rel and abs.
func (d *decoder) tolerance(n *node) (t Tolerance) {
	switch v := n.value.(type) {
	case string:
		if t.Exact = v == "exact"; !t.Exact {
			d.unknown(n.at, fmt.Sprintf("tolerance %q", v), v, []string{"exact"})
		}
	case map[string]any:
		d.table(n, "a tolerance", map[string]func(*node){
			"rel": func(n *node) { t.Rel = d.bound(n, "rel") },
			"abs": func(n *node) { t.Abs = d.bound(n, "abs") },
		})
	default:
		d.wrongType(n, "a tolerance", `"exact" or a table with rel and abs`)
	}
	return t
}

// bound reads a number that bounds an error: finite, 0 or more.
func (d *decoder) bound(n *node, what string) float64 {
	v, ok := n.value.(float64)
	if i, whole := n.value.(int64); whole {
		v, ok = float64(i), true
	}
	if !ok {
		d.wrongType(n, what, "a number")
		return 0
	}
	if !(v >= 0) || math.IsInf(v, 0) {
		d.fail(n.at, "%s is %v; expected a finite number, 0 or more", what, v)
		return 0
	}
	return v
}
