package term

import (
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"
)

// Logger returns a logger that writes messages of level and above to the terminal, each as a line with the time of day. colored
// adds colors to the lines.
func (t *Terminal) Logger(colored bool, level slog.Level) *slog.Logger {
	steps := zerolog.Level(level / 4) // above info; levels of slog differ by 4
	log := zerolog.New(t.logWriter(colored)).Level(zerolog.InfoLevel + steps).With().Timestamp().Logger()
	return slog.New(zerolog.NewSlogHandler(log))
}

// logWriter returns a writer of log lines to the terminal. Colored lines bypass the
// escaping of the terminal, which would escape the color codes. logWriter escapes the
// parts of an event that zerolog does not quote.
func (t *Terminal) logWriter(colored bool) zerolog.ConsoleWriter {
	var out io.Writer = t
	if colored {
		out = rawWriter{t}
	}
	return zerolog.ConsoleWriter{Out: out, NoColor: !colored, TimeFormat: time.TimeOnly, FormatPrepare: escapeEvent}
}

// rawWriter writes text to a terminal without escaping it.
type rawWriter struct{ *Terminal }

// Write implements io.Writer.
func (w rawWriter) Write(p []byte) (int, error) {
	if err := w.writeRaw(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// escapeEvent escapes control characters in a log event: in the names of fields, the
// message, lists and objects. zerolog itself quotes fields that are strings.
func escapeEvent(event map[string]any) error {
	for _, name := range slices.Collect(maps.Keys(event)) {
		value := event[name]
		if _, quoted := value.(string); !quoted || name == zerolog.MessageFieldName {
			value = escapeValue(value)
		}
		delete(event, name)
		event[EscapeLine(name)] = value
	}
	return nil
}

func escapeValue(value any) any {
	switch v := value.(type) {
	case string:
		return EscapeLine(v)
	case []any:
		for i := range v {
			v[i] = escapeValue(v[i])
		}
	case map[string]any:
		for _, name := range slices.Collect(maps.Keys(v)) {
			inner := v[name]
			delete(v, name)
			v[EscapeLine(name)] = escapeValue(inner)
		}
	}
	return value
}
