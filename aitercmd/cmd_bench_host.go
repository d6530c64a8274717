package aitercmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aiter-go/aiter/internal/perf"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// hostRow is a case of bench --host, for --json. Times are medians in microseconds.
type hostRow struct {
	Op         string         `json:"op"`
	Target     string         `json:"target"`
	DType      string         `json:"dtype"`
	Values     map[string]any `json:"case"`
	UpBytes    int64          `json:"up_bytes"`
	DownBytes  int64          `json:"down_bytes"`
	UpUS       float64        `json:"copy_up_us"`
	DownUS     float64        `json:"copy_down_us"`
	BothUS     float64        `json:"copies_at_once_us"`
	NaiveUS    float64        `json:"naive_us"`
	PageableUS float64        `json:"pageable_us"`
	PinnedUS   float64        `json:"pinned_us"`
	// Fractions of the pipelined call with pinned memory, and speed-ups over the naive sequence.
	OfSlower        float64 `json:"pinned_of_slower_direction"`
	OfBoth          float64 `json:"pinned_of_copies_at_once"`
	PageableSpeedup float64 `json:"pageable_speedup"`
	PinnedSpeedup   float64 `json:"pinned_speedup"`

	words []string // of the case in the table
}

// checkHost refuses flags that contradict --host.
func (f *benchFlags) checkHost() error {
	if f.host && (f.csv || f.html != "" || f.chart != "" || f.compare != "" || f.from != "") {
		return usagef("--host prints a table or --json; --csv, --html, --chart, --compare and --from contradict it")
	}
	return nil
}

// benchHost measures calls that begin and end in host memory.
func (a *app) benchHost(ctx context.Context, f *benchFlags, name string) (err error) {
	op, err := a.declaration(name)
	if err != nil {
		return err
	}
	planned, err := f.cases(op, tensor.Host())
	if err != nil {
		return err
	}
	b, err := a.openSession(ctx, f.deviceFlags, op, planned)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if b.device.IsHost() {
		return usagef("--host: the calls are on %s, whose memory is the host's; give --device of a GPU", b.device)
	}
	cases, err := f.cases(op, b.device)
	if err != nil {
		return err
	}
	b.meter, err = perf.Open(perf.Options{
		Driver: b.driver, Device: b.device, Transfer: optests.Transfer(b.reg.Devices(), b.device),
		Warmups: f.warmups, Iterations: f.iterations,
	})
	if err != nil {
		return err
	}
	var rows []hostRow
	for i, c := range cases {
		a.err.SetStatus(fmt.Sprintf("[%d/%d] %s %s", i+1, len(cases), op.Name(), c.Case))
		row, err := b.hostRow(ctx, c.Case)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	if a.json {
		return a.writeJSON(map[string]any{"device": b.info.Name, "rows": rows})
	}
	fmt.Fprintf(a.out, "%s; tensors in host memory; copies are of pinned memory\n", b.info.Name)
	return a.table(hostTable(rows))
}

func (b *opSession) hostRow(ctx context.Context, c optests.Case) (hostRow, error) {
	h, err := b.meter.MeasureHost(ctx, b.decl, c,
		func(ctx context.Context, args []any) error { return b.op.Call(ctx, args...) },
		func(ctx context.Context, args []any) error { return b.op.CallHost(ctx, b.device, args...) })
	values := map[string]any{}
	for _, v := range caseValues(b.decl, c, true) {
		values[v.Name] = v.Value
	}
	return hostRow{
		Op: b.op.Name(), Target: b.targetName(), DType: c.DType.String(), Values: values, UpBytes: h.UpBytes, DownBytes: h.DownBytes,
		UpUS: h.Up.Median, DownUS: h.Down.Median, BothUS: h.Both.Median, NaiveUS: h.Naive.Median,
		PageableUS: h.Pageable.Median, PinnedUS: h.Pinned.Median, OfSlower: h.OfSlower(h.Pinned), OfBoth: h.OfBoth(h.Pinned),
		PageableSpeedup: h.Speedup(h.Pageable), PinnedSpeedup: h.Speedup(h.Pinned), words: caseWords(b.decl, c),
	}, err
}

// caseWords returns the type, the choices and the sizes of a case.
func caseWords(op optests.Declaration, c optests.Case) []string {
	words := []string{c.DType.String()}
	for _, p := range ofKind(recordParams(op), optests.Choice, optests.Size) {
		if v := p.Cell(c); v != nil {
			words = append(words, fmt.Sprint(v))
		}
	}
	return words
}

func hostTable(rows []hostRow) [][]string {
	table := [][]string{{"CASE", "MiB UP", "DOWN", "COPY UP us", "DOWN us", "BOTH us", "NAIVE us", "PAGEABLE us", "SPEED-UP", "PINNED us",
		"SPEED-UP", "% OF SLOWER COPY", "% OF BOTH"}}
	mib := func(n int64) string { return fmt.Sprintf("%.1f", float64(n)/(1<<20)) }
	us := func(v float64) string { return fmt.Sprintf("%.0f", v) }
	for _, r := range rows {
		table = append(table, []string{strings.Join(r.words, " "), mib(r.UpBytes), mib(r.DownBytes), us(r.UpUS), us(r.DownUS), us(r.BothUS),
			us(r.NaiveUS), us(r.PageableUS), fmt.Sprintf("%.1fx", r.PageableSpeedup), us(r.PinnedUS), fmt.Sprintf("%.1fx", r.PinnedSpeedup),
			fmt.Sprintf("%.1f", 100*r.OfSlower), fmt.Sprintf("%.1f", 100*r.OfBoth)})
	}
	return table
}
