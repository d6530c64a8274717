//go:build linux

package otelaiter_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/metrics"
	"github.com/aiter-go/aiter/otelaiter"
	"github.com/aiter-go/aiter/registry"
)

const config = `
[module.module_small]
targets = ["cpu"]
[[module.module_small.source]]
path = "src/*.cpp"
[[module.module_small.op]]
name = "small"
schema = "(int code) -> ()"
`

// small fails for code 1.
const small = `
struct Any { int type; int pad; long long value; };
extern "C" __attribute__((visibility("default"))) int __tvm_ffi_small(void*, const Any* args, int, Any*) { return args[0].value ? -1 : 0; }
`

// fixture is a source tree with the operator small, which records spans and counts.
type fixture struct {
	t      *testing.T
	source *testenv.Tree
	cache  string
	spans  *tracetest.SpanRecorder
	traces *trace.TracerProvider
	reader *metric.ManualReader
	reg    *registry.Registry
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	b := &fixture{t: t, source: testenv.NewTree(t, config), cache: t.TempDir(), spans: tracetest.NewSpanRecorder(),
		reader: metric.NewManualReader()}
	b.traces = trace.NewTracerProvider(trace.WithSpanProcessor(b.spans))
	b.source.Write("src/small.cpp", small)
	return b
}

// open opens a registry, as another process does.
func (b *fixture) open(o otelaiter.Options) {
	b.t.Helper()
	o.TracerProvider, o.MeterProvider = b.traces, metric.NewMeterProvider(metric.WithReader(b.reader))
	observer, err := otelaiter.New(o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.reg, err = registry.Open(context.Background(), registry.Options{
		Root: b.source.Root, CacheDir: b.cache, Observer: jit.Join(metrics.New(), observer),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = b.reg.Close() })
}

// call calls the operator inside a span with the name of the test.
func (b *fixture) call(code int) error {
	b.t.Helper()
	ctx, span := b.traces.Tracer("test").Start(context.Background(), "request")
	defer span.End()
	op, err := b.reg.Lookup("small")
	if err != nil {
		b.t.Fatal(err)
	}
	return op.Call(ctx, code)
}

// tree returns the recorded spans, each as the names from the root to it, and forgets them.
func (b *fixture) tree() (paths []string, byName map[string]trace.ReadOnlySpan) {
	ended := b.spans.Ended()
	byName = map[string]trace.ReadOnlySpan{}
	for _, s := range ended {
		path := s.Name()
		for up := s.Parent(); up.IsValid(); {
			i := slices.IndexFunc(ended, func(p trace.ReadOnlySpan) bool { return p.SpanContext().SpanID() == up.SpanID() })
			if i < 0 {
				b.t.Fatalf("%s has a parent that did not end", s.Name())
			}
			path, up = ended[i].Name()+"/"+path, ended[i].Parent()
		}
		paths = append(paths, path)
		if !slices.Contains(attributes(s), "aiter.module=module_aiter_ffi") {
			byName[s.Name()] = s
		}
	}
	b.spans.Reset()
	slices.Sort(paths)
	return slices.Compact(paths), byName
}

func attributes(s trace.ReadOnlySpan) []string {
	var list []string
	for _, a := range s.Attributes() {
		list = append(list, string(a.Key)+"="+a.Value.String())
	}
	return list
}

func (b *fixture) wantAttributes(s trace.ReadOnlySpan, want ...string) {
	b.t.Helper()
	if s == nil {
		b.t.Fatalf("no span with %v", want)
	}
	for _, w := range want {
		if !slices.ContainsFunc(attributes(s), func(a string) bool { return a == w || strings.HasSuffix(w, "=") && strings.HasPrefix(a, w) }) {
			b.t.Errorf("span %s has %v, which lacks %s", s.Name(), attributes(s), w)
		}
	}
}

func (b *fixture) wantTree(what string, got []string, want ...string) {
	b.t.Helper()
	if slices.Sort(want); !slices.Equal(got, want) {
		b.t.Errorf("%s: got the spans\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestSpans(t *testing.T) {
	b := newFixture(t)
	b.open(otelaiter.Options{Calls: true, DeviceTime: true})
	if err := b.call(0); err != nil {
		t.Fatal(err)
	}
	const call = "request/aiter.call"
	paths, spans := b.tree()
	b.wantTree("cold", paths, "request", call, call+"/aiter.build", call+"/aiter.build/aiter.lookup",
		call+"/aiter.build/aiter.compile", call+"/aiter.build/aiter.link", call+"/aiter.load")
	b.wantAttributes(spans["aiter.call"], "aiter.op=small", "aiter.module=module_small", "aiter.device_seconds=")
	b.wantAttributes(spans["aiter.build"], "aiter.module=module_small", "aiter.arch=cpu", "aiter.status=compiled")
	b.wantAttributes(spans["aiter.compile"], "aiter.unit=src/small.cpp", "aiter.cause=new")
	b.wantAttributes(spans["aiter.lookup"], "aiter.status=miss")
	b.wantAttributes(spans["aiter.load"], "aiter.module=module_small")

	if err := b.call(1); err == nil {
		t.Fatal("no error for code 1")
	}
	paths, spans = b.tree()
	b.wantTree("a call of loaded code", paths, "request", call)
	if s := spans["aiter.call"].Status(); s.Code != codes.Error {
		t.Errorf("a call that fails has the status %v", s)
	}

	b.open(otelaiter.Options{})
	if err := b.call(0); err != nil {
		t.Fatal(err)
	}
	paths, spans = b.tree()
	b.wantTree("warm, without calls", paths, "request", "request/aiter.build", "request/aiter.build/aiter.lookup", "request/aiter.load")
	b.wantAttributes(spans["aiter.build"], "aiter.status=hit")
	b.wantAttributes(spans["aiter.lookup"], "aiter.status=hit")
}

// A build that fails ends its spans with the error.
func TestFailedBuild(t *testing.T) {
	b := newFixture(t)
	b.source.Write("src/small.cpp", "oops\n")
	b.open(otelaiter.Options{Calls: true})
	if err := b.call(0); err == nil {
		t.Fatal("no error for a broken source")
	}
	_, spans := b.tree()
	for _, name := range []string{"aiter.call", "aiter.build", "aiter.compile"} {
		if s := spans[name]; s == nil || s.Status().Code != codes.Error || len(s.Events()) == 0 {
			t.Errorf("%s ends without the error", name)
		}
	}
}

func TestCounts(t *testing.T) {
	b := newFixture(t)
	b.open(otelaiter.Options{Calls: true, DeviceTime: true})
	for _, code := range []int{0, 0, 1} {
		_ = b.call(code) // code 1 fails
	}
	got := map[string]map[attribute.Distinct]uint64{}
	var all metricdata.ResourceMetrics
	if err := b.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	add := func(name string, set attribute.Set, n uint64) {
		if got[name] == nil {
			got[name] = map[attribute.Distinct]uint64{}
		}
		got[name][set.Equivalent()] += n
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, uint64(p.Value))
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, p.Count)
			}
		}
	}
	for _, c := range []struct {
		name  string
		attrs []string
		want  uint64
	}{
		{"aiter.build.duration", []string{"result=ok", "module=module_small", "arch=cpu"}, 1},
		{"aiter.compile.duration", []string{"result=ok", "module=module_small", "arch=cpu"}, 1},
		{"aiter.link.duration", []string{"result=ok", "module=module_small", "arch=cpu"}, 1},
		{"aiter.unit.lookups", []string{"result=miss", "cause=new", "module=module_small", "arch=cpu"}, 1},
		{"aiter.calls", []string{"op=small", "device=cpu", "result=ok"}, 2},
		{"aiter.calls", []string{"op=small", "device=cpu", "result=failed"}, 1},
		{"aiter.call.device_duration", []string{"op=small", "device=cpu"}, 2},
	} {
		var attrs []attribute.KeyValue
		for _, a := range c.attrs {
			name, value, _ := strings.Cut(a, "=")
			attrs = append(attrs, attribute.String("aiter."+name, value))
		}
		set := attribute.NewSet(attrs...)
		if n := got[c.name][set.Equivalent()]; n != c.want {
			t.Errorf("%s %v is %d, want %d", c.name, c.attrs, n, c.want)
		}
	}
}
