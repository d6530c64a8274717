package optests

// Config is a case that has a name.
type Config struct {
	Name string
	Case Case
}

// caseLists are the cases that an operator is tested and measured with.
type caseLists struct {
	defaults Case     // sizes of calls that give none
	configs  []Config // named: small ones first, then the sizes that models use
	sweep    []Case   // from small to large
	edges    []Case   // sizes at which kernels fail
	grid     Grid
}

// Configs lists the named configurations of an operator: small ones that every
// target runs quickly, then the sizes that models use. Types and seed have their
// defaults. The error is an *UnknownOpError.
func Configs(op string) ([]Config, error) {
	decl, err := lookup(op)
	if err != nil {
		return nil, err
	}
	return decl.cases().configs, nil
}

// DefaultCase is a small case of an operator; its sizes replace those that a
// caller leaves out. The error is an *UnknownOpError.
func DefaultCase(op string) (Case, error) {
	decl, err := lookup(op)
	if err != nil {
		return Case{}, err
	}
	return decl.cases().defaults, nil
}

// Sweep lists cases of an operator from small to large, to show how speed grows
// with size. The error is an *UnknownOpError.
func Sweep(op string) ([]Case, error) {
	decl, err := lookup(op)
	if err != nil {
		return nil, err
	}
	return decl.cases().sweep, nil
}

// EdgeCases lists the sizes of an operator at which kernels fail: no elements,
// and one more than a block, a launch grid or a tile holds. The error is an
// *UnknownOpError.
func EdgeCases(op string) ([]Case, error) {
	decl, err := lookup(op)
	if err != nil {
		return nil, err
	}
	return decl.cases().edges, nil
}

// StandardGrid is the grid of cases on which an operator must pass on every
// target. The error is an *UnknownOpError.
func StandardGrid(op string) (Grid, error) {
	decl, err := lookup(op)
	if err != nil {
		return Grid{}, err
	}
	return decl.cases().grid, nil
}
