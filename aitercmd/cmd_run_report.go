package aitercmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/aiter-go/aiter/internal/spelling"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// runReport is the output of run --json. The names are part of the interface.
type runReport struct {
	Op      string         `json:"op"`
	Target  string         `json:"target"`
	OK      bool           `json:"ok"`
	Outputs []outputReport `json:"outputs"`
	Result  any            `json:"result"`    // int64, bool or float64; null for none
	Median  *float64       `json:"median_us"` // null with --repeat 0
	Cold    float64        `json:"cold_seconds"`
	Error   *string        `json:"error"`

	call     string // the case or the arguments
	device   tensor.Device
	verified bool
	times    []time.Duration
}

// outputReport is one output. Without --verify only its size is known.
type outputReport struct {
	optests.Result
	verified bool
}

// MarshalJSON writes null for unknown values.
func (o outputReport) MarshalJSON() ([]byte, error) {
	if o.verified {
		return o.Result.MarshalJSON()
	}
	return json.Marshal(struct {
		Name       string   `json:"name"`
		MaxAbsErr  *float64 `json:"max_abs_err"`
		MaxRelErr  *float64 `json:"max_rel_err"`
		Mismatches *int64   `json:"mismatches"`
		Elements   int64    `json:"elements"`
	}{Name: o.Name, Elements: o.Elements})
}

// jsonResult returns a result that JSON can express: NaN and infinities as text, other values unchanged.
func jsonResult(v any) any {
	if f, ok := v.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
		return fmt.Sprint(f)
	}
	return v
}

// printRun prints the report and returns the error of the command.
func (a *app) printRun(rep *runReport, err error) error {
	if err == nil && !rep.OK {
		err = &verifyError{fmt.Sprintf("%s on %s is wrong for %s", rep.Op, rep.device, rep.call)}
	}
	if a.json {
		if err != nil {
			text := err.Error()
			rep.OK, rep.Error = false, &text
		}
		rep.Result = jsonResult(rep.Result)
		return errors.Join(a.writeJSON(rep), err)
	}
	return errors.Join(a.printRunTable(rep), err)
}

func (a *app) printRunTable(rep *runReport) error {
	if len(rep.Outputs) == 0 && rep.Result == nil {
		return nil // the run failed before the call
	}
	where := rep.device.String()
	if where != rep.Target {
		where += " (" + rep.Target + ")"
	}
	fmt.Fprintf(a.out, "%s on %s: %s\n", rep.Op, where, rep.call)
	if rep.verified {
		if err := a.table(rep.rows()); err != nil {
			return err
		}
		for _, o := range rep.Outputs {
			if !o.OK() {
				fmt.Fprintln(a.out, o.Result)
			}
		}
	}
	if rep.Result != nil {
		fmt.Fprintf(a.out, "result %v\n", rep.Result)
	}
	fmt.Fprintf(a.out, "first call %.3f s", rep.Cold)
	if rep.Median != nil {
		fmt.Fprintf(a.out, "; median of %s %.1f us", spelling.Count(len(rep.times), "call"), *rep.Median)
	}
	_, err := fmt.Fprintln(a.out)
	return err
}

func (rep *runReport) rows() [][]string {
	rows := [][]string{{"OUTPUT", "ELEMENTS", "MAX ABS ERR", "MAX REL ERR", "MISMATCHES", "RESULT"}}
	for _, o := range rep.Outputs {
		verdict := "ok"
		if !o.OK() {
			verdict = "WRONG"
		}
		rows = append(rows, []string{
			o.Name, fmt.Sprint(o.Elements), fmt.Sprintf("%.3g", o.MaxAbsErr), fmt.Sprintf("%.3g", o.MaxRelErr), fmt.Sprint(o.Mismatches), verdict,
		})
	}
	return rows
}

// median returns the median in microseconds, nil for an empty list.
func median(times []time.Duration) *float64 {
	if len(times) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(times))
	mid := len(sorted) / 2
	us := float64(sorted[mid].Nanoseconds()) / 1e3
	if len(sorted)%2 == 0 {
		us = (us + float64(sorted[mid-1].Nanoseconds())/1e3) / 2
	}
	return &us
}
