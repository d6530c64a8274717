package buildfarm_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// proxy forwards the calls of clients to a farm and makes faults.
type proxy struct {
	host string
	farm *grpc.ClientConn

	mu    sync.Mutex
	calls map[string]int // by method, such as "Execute"
	fault fault
}

// fault changes calls. Its functions may be nil.
type fault struct {
	// call fails a call instead of forwarding it.
	call func(ctx context.Context, method string) error
	// answer changes a message of the farm; io.EOF ends the stream.
	answer func(ctx context.Context, method string, message []byte) ([]byte, error)
	// request gets a message of the client. If it returns a message, that is the answer.
	request func(method string, message []byte) []byte
}

// raw is a codec that does not change messages.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (raw) Name() string { return "raw" }

func newProxy(t *testing.T, farm string, options ...grpc.ServerOption) *proxy {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+farm, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{host: l.Addr().String(), farm: conn, calls: map[string]int{}}
	s := grpc.NewServer(append(options, grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(p.forward), grpc.MaxRecvMsgSize(64<<20))...)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		_ = conn.Close()
	})
	return p
}

func (p *proxy) set(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.calls = f, map[string]int{}
}

func (p *proxy) count(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[method]
}

// forward handles one call.
func (p *proxy) forward(_ any, client grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(client)
	method := full
	for i := len(full) - 1; i >= 0; i-- {
		if full[i] == '/' {
			method = full[i+1:]
			break
		}
	}
	p.mu.Lock()
	p.calls[method]++
	f := p.fault
	p.mu.Unlock()
	if f.call != nil {
		if err := f.call(client.Context(), method); err != nil {
			return err
		}
	}
	md, _ := metadata.FromIncomingContext(client.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(client.Context(), md))
	defer cancel()
	farm, err := p.farm.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, full)
	if err != nil {
		return err
	}
	answered := make(chan []byte, 1)
	go func() {
		for {
			var m []byte
			if client.RecvMsg(&m) != nil {
				_ = farm.CloseSend()
				return
			}
			if f.request != nil {
				if answer := f.request(method, m); answer != nil {
					answered <- answer
					cancel()
					return
				}
			}
			if farm.SendMsg(&m) != nil {
				return
			}
		}
	}()
	for {
		var m []byte
		err := farm.RecvMsg(&m)
		select {
		case answer := <-answered:
			return client.SendMsg(&answer)
		default:
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if f.answer != nil {
			if m, err = f.answer(client.Context(), method, m); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
		if err := client.SendMsg(&m); err != nil {
			return err
		}
	}
}

// edit applies change to an encoded message of type M.
func edit[M proto.Message](data []byte, m M, change func(M)) []byte {
	if proto.Unmarshal(data, m) != nil {
		return data
	}
	change(m)
	out, err := proto.Marshal(m)
	if err != nil {
		return data
	}
	return out
}

// unavailable returns a fault that fails the calls of some methods.
func unavailable(methods ...string) fault {
	return fault{call: func(_ context.Context, method string) error {
		for _, m := range methods {
			if m == method {
				return status.Error(codes.Unavailable, "the farm is being restarted")
			}
		}
		return nil
	}}
}

// silent returns a fault that answers no call of a method.
func silent(method string) fault {
	return fault{call: func(ctx context.Context, m string) error {
		if m != method {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}}
}
