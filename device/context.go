package device

import "context"

type streamKey struct{}

// WithStream returns a context with which operator calls, and copies of [Devices], are queued on s after its earlier work.
// They return before the work is complete. Until then their memory must not be freed, and what they read must not change.
// [Queue.Synchronize] waits for the work. A copy overlaps with other work if its memory on the host is pinned
// ([Devices.NewPinned]).
func WithStream(ctx context.Context, s Stream) context.Context {
	return context.WithValue(ctx, streamKey{}, s)
}

// StreamFrom returns the stream given to WithStream, if any.
func StreamFrom(ctx context.Context) (Stream, bool) {
	s, ok := ctx.Value(streamKey{}).(Stream)
	return s, ok
}
