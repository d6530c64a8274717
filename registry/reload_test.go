//go:build linux

package registry_test

import (
	"errors"
	"flag"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/registry"
)

var reloads = flag.Int("reloads", 12, "how many versions TestReloadUnderCalls goes through")

// Eight goroutines call an operator while its code is replaced repeatedly. No call may
// fail, mix two versions or return to an older version.
func TestReloadUnderCalls(t *testing.T) {
	c, o := newCheckout(t), newEventLog()
	r := c.open(o)
	op := lookup(t, r, "version")
	expect(t, op, 1)
	var stop atomic.Bool
	var calls atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			last := 0.0
			for !stop.Load() && !t.Failed() {
				got, err := callVersion(op)
				calls.Add(1)
				switch {
				case err != nil:
					t.Error(err)
				case slices.Min(got) != slices.Max(got):
					t.Errorf("one call mixed versions: %v", got)
				case got[0] < last:
					t.Errorf("version %g after %g", got[0], last)
				default:
					last = got[0]
				}
				time.Sleep(100 * time.Microsecond) // leaves processor time for the compiler
			}
		})
	}
	for n := 2; n <= *reloads+1 && !t.Failed(); n++ {
		c.version(n)
		if e := o.wait(t); e.Err != nil || e.Module != "module_version" {
			t.Errorf("reload %d: %+v", n, e)
		}
		expect(t, op, float64(n)) // no call may use the old code
	}
	stop.Store(true)
	wg.Wait()
	if held := heldArtifacts(t, r); held != 1 {
		t.Errorf("%d artifacts of the module are marked as in use, want only the newest", held)
	}
	slices.Sort(o.gaps)
	t.Logf("%d reloads under %d calls; from the end of a build until calls run the new code: median %v, most %v",
		len(o.gaps), calls.Load(), o.gaps[len(o.gaps)/2], o.gaps[len(o.gaps)-1])
	if median := o.gaps[len(o.gaps)/2]; median > 100*time.Millisecond {
		t.Errorf("calls use new code %v after its build", median)
	}
}

// A change that cannot be used has no effect and is reported; the error disappears
// after a fix.
func TestReloadThatFails(t *testing.T) {
	c, o := newCheckout(t), newEventLog()
	r := c.open(o)
	op := lookup(t, r, "version")
	expect(t, op, 1)
	fails := func(check func(error) bool) {
		t.Helper()
		var reload *registry.ReloadError
		if e := o.wait(t); !errors.As(e.Err, &reload) || !check(e.Err) {
			t.Errorf("got %v", e.Err)
		}
		if err := r.ReloadErr(); !errors.As(err, &reload) || !check(err) {
			t.Errorf("ReloadErr: %v", err)
		}
		expect(t, op, 1)
	}
	fixed := func(want float64) {
		t.Helper()
		if e := o.wait(t); e.Err != nil || r.ReloadErr() != nil {
			t.Errorf("got %v, %v", e.Err, r.ReloadErr())
		}
		expect(t, op, want)
	}
	c.Write("csrc/version/version.h", "#define VERSION oops\n")
	fails(as(func(e *jit.CompileError) bool { return strings.Contains(e.Output, "oops") }))
	c.version(1) // the version before the error
	fixed(1)

	c.Write("csrc/version/b.cpp", "#include \"missing.h\"\n#include \"version.h\"\nint from_other_unit() { return VERSION; }\n")
	fails(as(func(e *jit.CompileError) bool { return strings.Contains(e.Output, "missing.h") }))
	c.Write("csrc/version/missing.h", "\n") // a file that no build has read yet
	fixed(1)

	c.Write("csrc/version/b.cpp", "int nothing;\n")
	fails(as(func(e *registry.LoadError) bool { return true }))
	c.Write("csrc/version/b.cpp", "#include \"version.h\"\nint from_other_unit() { return VERSION; }\n")
	fixed(1)

	c.Write("csrc/version/a.cpp", strings.Replace(versionSource, "__tvm_ffi_version", "__tvm_ffi_other", 1))
	fails(as(func(e *jit.CompileError) bool { return strings.Contains(e.Reason, "AITER_EXPORT") })) // the library has no operator
	c.Write("csrc/version/a.cpp", versionSource)
	fixed(1)

	c.Config(strings.Replace(versionConfig, "schema =", "shema =", 1))
	fails(as(func(e *opconfig.Error) bool { return strings.Contains(r.ReloadErr().Error(), `did you mean "schema"`) }))
	c.version(2) // code is reloaded in spite of the configuration's error
	if e := o.wait(t); e.Err != nil || e.Module != "module_version" || r.ReloadErr() == nil {
		t.Errorf("got %+v, %v", e, r.ReloadErr())
	}
}

// A reload may change, remove and restore an operator. Calls use the current declaration,
// and a call with wrong arguments gets a typed error.
func TestReloadOfTheConfiguration(t *testing.T) {
	c, o := newCheckout(t), newEventLog()
	r := c.open(o)
	op := lookup(t, r, "version")
	expect(t, op, 1)
	step := func(name, config string, modules int) {
		t.Helper()
		c.Config(config)
		for range modules {
			if e := o.wait(t); e.Err != nil {
				t.Errorf("%s: %+v", name, e)
			}
		}
	}
	step("another line", "\n# One more.\n"+versionConfig, 1)
	select {
	case e := <-o.reloads:
		t.Errorf("after the operator moved to another line: %+v", e)
	case <-time.After(time.Second):
	}
	// The C ABI entry of this operator takes any number of arguments.
	step("another argument", strings.Replace(versionConfig, "out)", "out, int n)", 1), 2)
	var arity *registry.ArityError
	if _, err := callVersion(op); !errors.As(err, &arity) || arity.Min != 2 || len(op.Schema().Args) != 2 {
		t.Errorf("got %v, want an ArityError of the new schema, %s", err, op.Schema())
	}
	expect(t, op, 1, 7)

	other := strings.NewReplacer("[module.module_version]", "[module.module_other]", "module.module_version.",
		"module.module_other.").Replace(versionConfig)
	step("in another module", other, 1)
	if op.Module() != "module_other" || lookup(t, r, "version") != op {
		t.Errorf("the operator is in module %s", op.Module())
	}
	expect(t, op, 1)

	step("another operator", strings.Replace(versionConfig, `"version"`, `"revision"`, 1), 1)
	var removed *registry.RemovedError
	if _, err := callVersion(op); !errors.As(err, &removed) || removed.Op != "version" || op.Name() != "version" {
		t.Errorf("got %v, want a RemovedError", err)
	}
	var unknown *registry.UnknownOpError
	if _, err := r.Lookup("version"); !errors.As(err, &unknown) || !slices.Equal(unknown.Nearest, []string{"revision"}) {
		t.Errorf("got %v, want an UnknownOpError", err)
	}
	if ops := r.Ops(); len(ops) != 1 || ops[0].Name() != "revision" {
		t.Errorf("operators: %v", ops)
	}
	step("back again", versionConfig, 1)
	expect(t, op, 1)
	if err := r.ReloadErr(); err != nil {
		t.Error(err)
	}
}

// A reload may replace the parts of a module.
func TestReloadOfTheParts(t *testing.T) {
	testenv.Long(t)
	const byType = "[module.module_version.axis.dtype]\nargument = \"out\"\nvalues = [\"int32\", \"float32\"]\ndefine = \"TYPE\"\n"
	const bySize = "[module.module_version.axis.size]\nargument = \"out\"\ndimension = 0\nvalues = [\"1\", \"2-\"]\ndefine = \"SIZE\"\n"
	const byLayout = "[module.module_version.axis.size]\nargument = \"out\"\nadjacent = [0, 1]\nvalues = [\"a\", \"b\"]\ndefine = \"SIZE\"\n"
	for name, axes := range map[string][2]string{
		"a removed axis":   {byType, ""},
		"another kind":     {bySize, byLayout},
		"another part key": {byType, bySize},
		"other ranges":     {bySize, strings.Replace(bySize, `"1", "2-"`, `"1-4", "5-"`, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			c, o := newCheckout(t), newEventLog()
			c.Config(versionConfig + axes[0])
			r := c.open(o)
			op := lookup(t, r, "version")
			expect(t, op, 1)
			c.Config(versionConfig + axes[1])
			for range 2 {
				if e := o.wait(t); e.Err != nil {
					t.Errorf("got %+v", e)
				}
			}
			expect(t, op, 1)
		})
	}
}

// An edit between the first build and its loading is not lost.
func TestReloadWhileLoading(t *testing.T) {
	c, o := newCheckout(t), newEventLog()
	c.Write("csrc/version/b.cpp", "#include \"version.h\"\nextern \"C\" int usleep(unsigned);\n"+
		"__attribute__((constructor)) void slow() { if (VERSION == 1) usleep(700 * 1000); }\nint from_other_unit() { return VERSION; }\n")
	builds := 0
	o.then = func() {
		if builds++; builds == 2 { // the first builds it along with the support library
			c.version(2)
		}
	}
	r := c.open(o)
	op := lookup(t, r, "version")
	expect(t, op, 1)
	if e := o.wait(t); e.Module != "module_version" || e.Err != nil {
		t.Errorf("got %+v", e)
	}
	expect(t, op, 2)
}

// After code is replaced, the artifact of the old code is not marked as in use.
func TestReloadReleasesOldArtifacts(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	c, o := newCheckout(t), newEventLog()
	r := c.open(o)
	op := lookup(t, r, "version")
	expect(t, op, 1)
	for n := 2; n <= 3; n++ {
		c.version(n)
		if e := o.wait(t); e.Err != nil {
			t.Errorf("got %+v", e)
		}
	}
	for end := time.Now().Add(patience); heldArtifacts(t, r) != 1; time.Sleep(10 * time.Millisecond) { // the event precedes the release
		if time.Now().After(end) {
			t.Fatalf("%d artifacts are marked as in use, want 1", heldArtifacts(t, r))
		}
	}
}

// Writing a file with unchanged content causes no build and no event.
func TestReloadOfNothing(t *testing.T) {
	c, o := newCheckout(t), newEventLog()
	r := c.open(o)
	op := lookup(t, r, "version")
	expect(t, op, 1)
	c.version(1)
	c.Config(versionConfig)
	c.Write("csrc/version/readme.txt", "not read by any build")
	c.version(2)
	if e := o.wait(t); e.Module != "module_version" || e.Err != nil {
		t.Errorf("got %+v", e)
	}
	expect(t, op, 2)
	builds := o.built()
	c.Write("csrc/version/b.cpp", "// a comment\n#include \"version.h\"\nint from_other_unit() { return VERSION; }\n")
	for end := time.Now().Add(patience); o.built() == builds && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	c.version(3) // its event is the next one
	if e := o.wait(t); e.Module != "module_version" || e.Err != nil {
		t.Errorf("got %+v", e)
	}
	expect(t, op, 3)
	if len(o.reloads) > 0 {
		t.Errorf("another event: %+v", <-o.reloads)
	}
}

// Close ends a running compile and leaves no goroutine or descriptor of the watcher.
func TestCloseWhileReloading(t *testing.T) {
	c, o := newCheckout(t), newEventLog()
	r := c.open(o)
	op := lookup(t, r, "version")
	expect(t, op, 1)
	slow := filepath.Join(c.Root, "csrc/version/slow.h")
	if err := syscall.Mkfifo(slow, 0o644); err != nil {
		t.Fatal(err)
	}
	c.Write("csrc/version/b.cpp", "#include \"slow.h\"\n") // a named pipe, on which the compiler blocks
	for !o.compiling() {
		time.Sleep(time.Millisecond)
	}
	before := time.Now()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(before); took > patience/2 {
		t.Errorf("Close took %v", took)
	}
	if _, err := callVersion(op); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("got %v", err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if !strings.Contains(string(stacks), "internal/watch") && !strings.Contains(string(stacks), "fsnotify") &&
			!strings.Contains(string(stacks), "reload)") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("goroutines remain:\n%s", stacks)
		}
	}
}

func TestReloadNeedsFiles(t *testing.T) {
	for name, opts := range map[string]registry.Options{
		"option":   {Reload: true},
		"variable": {Getenv: env(map[string]string{"AITER_RELOAD": "1"})},
	} {
		opts.CacheDir = t.TempDir()
		if _, err := registry.Open(t.Context(), opts); !errors.Is(err, registry.ErrNoCheckout) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	c := newCheckout(t)
	r := open(t, registry.Options{CacheDir: t.TempDir(), Getenv: env(map[string]string{"AITER_RELOAD": "true", "AITER_META_DIR": c.Root})})
	op := lookup(t, r, "version")
	expect(t, op, 1)
	c.version(2)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if got, err := callVersion(op); err != nil || got[0] == 2 {
			break
		}
	}
	expect(t, op, 2)
}
