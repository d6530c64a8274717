package profile

import (
	"cmp"
	"slices"
)

// counters are the counters by kernel and name.
type counters map[[2]string]*Counter

// add adds a value of one run of a kernel.
func (c counters) add(kernel, name, unit string, v float64) {
	at := c[[2]string{kernel, name}]
	if at == nil {
		at = &Counter{Kernel: kernel, Name: name, Unit: unit, Min: v, Max: v}
		c[[2]string{kernel, name}] = at
	}
	at.Runs++
	at.Mean += (v - at.Mean) / float64(at.Runs)
	at.Min, at.Max = min(at.Min, v), max(at.Max, v)
}

// list returns the counters by kernel and name.
func (c counters) list() []Counter {
	var list []Counter
	for _, one := range c {
		list = append(list, *one)
	}
	slices.SortFunc(list, func(a, b Counter) int { return cmp.Or(cmp.Compare(a.Kernel, b.Kernel), cmp.Compare(a.Name, b.Name)) })
	return list
}

// counterRow reads a row of counter_collection.csv.
func (imp *importer) counterRow(t *table) error {
	v, err := t.number("Counter_Value")
	if err != nil {
		return err
	}
	imp.counters.add(t.text("Kernel_Name"), t.text("Counter_Name"), "", v)
	return nil
}

// ncuRow reads a row of ncu --csv. Rows without a value are rules and texts.
func (imp *importer) ncuRow(t *table) error {
	if t.text("Metric Name") == "" || t.text("Metric Value") == "" {
		return nil
	}
	v, err := t.number("Metric Value")
	if err != nil {
		return nil // some metrics are words: "Cluster Scheduling Policy" is "PolicySpread"
	}
	imp.counters.add(t.text("Kernel Name"), t.text("Metric Name"), t.text("Metric Unit"), v)
	return nil
}
