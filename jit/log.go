package jit

import "github.com/rs/zerolog"

// logEvent writes a step of a build to the log, with its fields.
func logEvent(log *zerolog.Logger, e Event) {
	if log == nil {
		return
	}
	level := zerolog.DebugLevel
	if e.Step == Waiting {
		level = zerolog.InfoLevel
	}
	line := log.WithLevel(level)
	if !line.Enabled() {
		return
	}
	addStrings(line, e)
	if e.Units > 0 {
		line.Int("units", e.Units)
	}
	if e.Seconds > 0 {
		line.Float64("seconds", e.Seconds)
	}
	if e.Holder.PID > 0 {
		line.Int("holder", e.Holder.PID).Str("host", e.Holder.Host).Str("what", e.Holder.What).Time("since", e.Holder.Since)
	}
	line.Err(e.Err).Msg(string(e.Step))
}

// addStrings adds the fields that are not empty.
func addStrings(line *zerolog.Event, e Event) {
	for _, f := range []struct{ name, value string }{
		{"module", e.Module}, {"target", e.Target}, {"part", e.Part}, {"source", e.Source}, {"pass", string(e.Pass)},
		{"values", e.Values}, {"status", string(e.Status)}, {"cause", string(e.Miss.Cause)}, {"reason", e.Reason},
		{"key", e.Key.Short()}, {"digest", e.Digest},
	} {
		if f.value != "" {
			line.Str(f.name, f.value)
		}
	}
}
