package device

import "context"

type streamKey struct{}

// WithStream returns a context whose operator calls and copies of [Devices] are queued on s, behind the work that is there.
// They return before they are complete: until then the memory must stay, and what they read must not change.
// [Queue.Synchronize] waits for them. A copy overlaps with other work if its memory on the host is pinned
// ([Devices.NewPinned]).
func WithStream(ctx context.Context, s Stream) context.Context {
	return context.WithValue(ctx, streamKey{}, s)
}

// StreamFrom returns the stream given to WithStream, if any.
func StreamFrom(ctx context.Context) (Stream, bool) {
	s, ok := ctx.Value(streamKey{}).(Stream)
	return s, ok
}
