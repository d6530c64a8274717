package main

import (
	"io"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"
)

// console returns a writer of log lines to the screen. The screen would escape the
// color codes, so colored lines bypass it. visibleEvent escapes the parts that
// zerolog does not quote.
func (a *app) console(colored bool) zerolog.ConsoleWriter {
	var out io.Writer = a.err
	if colored {
		out = rawScreen{a.err}
	}
	return zerolog.ConsoleWriter{Out: out, NoColor: !colored, TimeFormat: time.TimeOnly, FormatPrepare: visibleEvent}
}

// rawScreen writes text to a screen as it is.
type rawScreen struct{ *screen }

// Write implements io.Writer.
func (s rawScreen) Write(p []byte) (int, error) {
	if err := s.writeRaw(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// visibleEvent escapes control characters in a log event: in the names of fields, the
// message, lists and objects. zerolog itself quotes fields that are strings.
func visibleEvent(event map[string]any) error {
	for _, name := range slices.Collect(maps.Keys(event)) {
		value := event[name]
		if _, quoted := value.(string); !quoted || name == zerolog.MessageFieldName {
			value = visibleValue(value)
		}
		delete(event, name)
		event[oneLine(name)] = value
	}
	return nil
}

func visibleValue(value any) any {
	switch v := value.(type) {
	case string:
		return oneLine(v)
	case []any:
		for i := range v {
			v[i] = visibleValue(v[i])
		}
	case map[string]any:
		for _, name := range slices.Collect(maps.Keys(v)) {
			inner := v[name]
			delete(v, name)
			v[oneLine(name)] = visibleValue(inner)
		}
	}
	return value
}
