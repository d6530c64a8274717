package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/aiter-go/aiter/internal/term"
	"github.com/aiter-go/aiter/internal/watch"
	"github.com/aiter-go/aiter/jit"
)

// teller says what a watch sees and does.
type teller interface {
	waiting(root string, keys bool)
	changed(changes []watch.Change)
	config(err error) // nil: it is good again
	built(r jit.Result)
	tested(op string, rep *testReport, err error)
	warning(err error)
}

func (a *app) newTeller() teller {
	root, err := filepath.Abs(a.sourceRoot())
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		root = "" // paths stay as they are
	}
	if a.json {
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false)
		return jsonTeller{enc, root}
	}
	return textTeller{a, root}
}

// below makes a path of the source tree relative to it.
func below(root, path string) string {
	if rel, err := filepath.Rel(root, path); root != "" && err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// textTeller writes for people.
type textTeller struct {
	app  *app
	root string
}

func (t textTeller) waiting(root string, keys bool) {
	if t.app.quiet {
		return
	}
	how := "Ctrl-C ends"
	if keys {
		how = "Enter tests, " + how
	}
	fmt.Fprintf(t.app.err, "watching %s (%s)\n", root, how)
}

func (t textTeller) changed(changes []watch.Change) {
	for _, c := range changes {
		fmt.Fprintf(t.app.out, "%s %s\n", c.What, term.EscapeLine(below(t.root, c.Path)))
	}
}

func (t textTeller) config(err error) {
	if err == nil {
		fmt.Fprintln(t.app.out, "the configuration is good again")
		return
	}
	fmt.Fprintf(t.app.out, "the configuration cannot be used, so the one before stays:\n%v\n", err)
}

func (t textTeller) built(r jit.Result) {
	if r.Err != nil {
		fmt.Fprintf(t.app.out, "%s: failed after %.2f s\n%v\n", r.Request, r.Seconds, r.Err)
		return
	}
	fmt.Fprintf(t.app.out, "%s: %s in %.2f s\n", r.Request, newModuleReport(r).result(), r.Seconds)
}

func (t textTeller) tested(op string, rep *testReport, err error) {
	if err != nil {
		fmt.Fprintf(t.app.out, "%s: not tested: %v\n", op, err)
		return
	}
	fmt.Fprintf(t.app.out, "%s on %s: %d of %d cases passed\n", op, rep.where, rep.Passed, len(rep.Cases))
	t.app.printFailures(rep)
}

func (t textTeller) warning(err error) { fmt.Fprintln(t.app.err, "aiterctl:", err) }

// watchEvent is a line of watch --json. The names stay.
type watchEvent struct {
	Event   string        `json:"event"`
	Root    string        `json:"root,omitempty"`
	Path    string        `json:"path,omitempty"`
	What    string        `json:"what,omitempty"`
	Result  string        `json:"result,omitempty"`
	Passed  *int          `json:"passed,omitempty"`
	Failed  *int          `json:"failed,omitempty"`
	Op      string        `json:"op,omitempty"`
	Message string        `json:"message,omitempty"`
	Error   *string       `json:"error,omitempty"`
	Build   *moduleReport `json:"build,omitempty"`
}

// jsonTeller writes for programs.
type jsonTeller struct {
	enc  *json.Encoder
	root string
}

// say writes a line; when nobody reads any more the next signal ends the program.
func (t jsonTeller) say(e watchEvent) { _ = t.enc.Encode(e) }

func (t jsonTeller) waiting(root string, _ bool) { t.say(watchEvent{Event: "watching", Root: root}) }

func (t jsonTeller) changed(changes []watch.Change) {
	for _, c := range changes {
		t.say(watchEvent{Event: "changed", Path: below(t.root, c.Path), What: c.What})
	}
}

func (t jsonTeller) config(err error) { t.say(watchEvent{Event: "config", Error: textOf(err)}) }

func (t jsonTeller) built(r jit.Result) {
	m := newModuleReport(r)
	t.say(watchEvent{Event: "built", Result: m.result(), Build: &m})
}

func (t jsonTeller) tested(op string, rep *testReport, err error) {
	e := watchEvent{Event: "tested", Op: op, Error: textOf(err)}
	if err == nil {
		e.Passed, e.Failed = &rep.Passed, &rep.Failed
	}
	t.say(e)
}

func (t jsonTeller) warning(err error) {
	t.say(watchEvent{Event: "warning", Message: strings.TrimSpace(err.Error())})
}

func textOf(err error) *string {
	if err == nil {
		return nil
	}
	text := err.Error()
	return &text
}
