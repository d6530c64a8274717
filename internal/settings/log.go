package settings

import (
	"context"
	"errors"
	"log/slog"
	"strings"
)

// LevelTrace is the level below [slog.LevelDebug].
const LevelTrace = slog.LevelDebug - 4

var errLevel = errors.New("expected trace, debug, info, warn or error")

// ParseLevel parses the name of a log level: trace, debug, info, warn or error, in upper or lower case.
func ParseLevel(word string) (slog.Level, error) {
	switch strings.ToLower(strings.TrimSpace(word)) {
	case "trace":
		return LevelTrace, nil
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, errLevel
}

// LogLevel reads AITER_LOG_LEVEL. ok is false if the variable is unset. The error is an *EnvironmentError.
func LogLevel(getenv func(string) string) (level slog.Level, ok bool, err error) {
	const name = "AITER_LOG_LEVEL"
	word := getenv(name)
	if word == "" {
		return 0, false, nil
	}
	if level, err = ParseLevel(word); err != nil {
		return 0, false, &EnvironmentError{name, word, err}
	}
	return level, true, nil
}

// defaultLogger returns the logger of a program that sets none: [slog.Default], which writes messages of level info and above to
// standard error unless the program changes it. If AITER_LOG_LEVEL is set, the logger has that level. The error is an
// *EnvironmentError.
func defaultLogger(getenv func(string) string) (*slog.Logger, error) {
	level, ok, err := LogLevel(getenv)
	if err != nil || !ok {
		return slog.Default(), err
	}
	return slog.New(leveled{slog.Default().Handler(), level}), nil
}

// leveled gives a handler another level, lower or higher than its own.
type leveled struct {
	slog.Handler
	level slog.Level
}

// Enabled implements slog.Handler.
func (h leveled) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// WithAttrs implements slog.Handler.
func (h leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return leveled{h.Handler.WithAttrs(attrs), h.level}
}

// WithGroup implements slog.Handler.
func (h leveled) WithGroup(name string) slog.Handler {
	return leveled{h.Handler.WithGroup(name), h.level}
}
