package device

import "context"

type streamKey struct{}

// WithStream returns a context whose operator calls are queued on s.
func WithStream(ctx context.Context, s Stream) context.Context {
	return context.WithValue(ctx, streamKey{}, s)
}

// StreamFrom returns the stream given to WithStream, if any.
func StreamFrom(ctx context.Context) (Stream, bool) {
	s, ok := ctx.Value(streamKey{}).(Stream)
	return s, ok
}
