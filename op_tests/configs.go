package optests

// Config is a case that has a name.
type Config struct {
	Name string
	Case Case
}

// caseLists are the cases that an operator is tested and measured with.
type caseLists struct {
	defaults Case     // sizes for calls that give none
	configs  []Config // named: small ones first, then the sizes that models use
	sweep    []Case   // from small to large
	edges    []Case   // sizes at which kernels often have faults
	grid     Grid
}

// EdgeCases lists cases of an operator with sizes at which kernels often have faults: no
// elements, and one more than a block, a launch grid or a tile holds. The error is an
// *UnknownOpError.
func EdgeCases(op string) ([]Case, error) {
	decl, err := lookup(op)
	if err != nil {
		return nil, err
	}
	return decl.cases().edges, nil
}

// StandardGrid returns the grid of cases on which an operator must pass on every
// target. The error is an *UnknownOpError.
func StandardGrid(op string) (Grid, error) {
	decl, err := lookup(op)
	if err != nil {
		return Grid{}, err
	}
	return decl.cases().grid, nil
}
