package aitercmd

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/aiter-go/aiter/internal/term"
	"github.com/aiter-go/aiter/internal/watch"
	"github.com/aiter-go/aiter/jit"
)

// watchReporter reports the events of a watch.
type watchReporter interface {
	waiting(root string, keys bool)
	changed(changes []watch.Change)
	config(err error) // nil: the configuration is valid again
	built(r jit.Result)
	tested(op string, rep *testReport, err error)
	warning(err error)
}

func (a *app) newWatchReporter() watchReporter {
	root := ""
	if roots := a.settings().Folders(); len(roots) == 1 { // with several roots, paths are printed in full
		root = realPath(roots[0])
	}
	if a.json {
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false)
		return jsonReporter{enc, root}
	}
	return textReporter{a, root}
}

// realPath returns the absolute path of a folder without symlinks, "" if there is none.
func realPath(dir string) string {
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return ""
	}
	return abs
}

// relativeTo returns a path inside root relative to it, and other paths unchanged.
func relativeTo(root, path string) string {
	if rel, err := filepath.Rel(root, path); root != "" && err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// textReporter writes text for people.
type textReporter struct {
	app  *app
	root string
}

func (t textReporter) waiting(root string, keys bool) {
	if t.app.quiet {
		return
	}
	help := "Ctrl-C: end"
	if keys {
		help = "Enter: test, " + help
	}
	fmt.Fprintf(t.app.err, "watching %s (%s)\n", root, help)
}

func (t textReporter) changed(changes []watch.Change) {
	for _, c := range changes {
		fmt.Fprintf(t.app.out, "%s %s\n", c.What, term.EscapeLine(relativeTo(t.root, c.Path)))
	}
}

func (t textReporter) config(err error) {
	if err == nil {
		fmt.Fprintln(t.app.out, "the configuration is valid again")
		return
	}
	fmt.Fprintf(t.app.out, "the configuration is not valid, so the previous one stays in use:\n%v\n", err)
}

func (t textReporter) built(r jit.Result) {
	if r.Err != nil {
		fmt.Fprintf(t.app.out, "%s: failed after %.2f s\n%v\n", r.Request, r.Seconds, r.Err)
		return
	}
	fmt.Fprintf(t.app.out, "%s: %s in %.2f s\n", r.Request, newModuleReport(r).result(), r.Seconds)
}

func (t textReporter) tested(op string, rep *testReport, err error) {
	if err != nil {
		fmt.Fprintf(t.app.out, "%s: not tested: %v\n", op, err)
		return
	}
	fmt.Fprintf(t.app.out, "%s on %s: %d of %d cases passed\n", op, rep.where, rep.Passed, len(rep.Cases))
	t.app.printFailures(rep)
}

func (t textReporter) warning(err error) {
	fmt.Fprintln(t.app.err, t.app.program.Name+":", t.app.named(err.Error()))
}

// watchEvent is a line of watch --json. The names are part of the interface.
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

// jsonReporter writes JSON for programs.
type jsonReporter struct {
	enc  *json.Encoder
	root string
}

// emit writes a line. outputWriter handles errors.
func (t jsonReporter) emit(e watchEvent) { _ = t.enc.Encode(e) }

func (t jsonReporter) waiting(root string, _ bool) { t.emit(watchEvent{Event: "watching", Root: root}) }

func (t jsonReporter) changed(changes []watch.Change) {
	for _, c := range changes {
		t.emit(watchEvent{Event: "changed", Path: relativeTo(t.root, c.Path), What: c.What})
	}
}

func (t jsonReporter) config(err error) { t.emit(watchEvent{Event: "config", Error: textOf(err)}) }

func (t jsonReporter) built(r jit.Result) {
	m := newModuleReport(r)
	t.emit(watchEvent{Event: "built", Result: m.result(), Build: &m})
}

func (t jsonReporter) tested(op string, rep *testReport, err error) {
	e := watchEvent{Event: "tested", Op: op, Error: textOf(err)}
	if err == nil {
		e.Passed, e.Failed = &rep.Passed, &rep.Failed
	}
	t.emit(e)
}

func (t jsonReporter) warning(err error) {
	t.emit(watchEvent{Event: "warning", Message: strings.TrimSpace(err.Error())})
}

// textOf returns the text of an error, nil for no error.
func textOf(err error) *string {
	if err == nil {
		return nil
	}
	text := err.Error()
	return &text
}
