package target_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/aiter-go/aiter/jit/target"
)

func TestFromGFXVersion(t *testing.T) {
	for v, want := range map[uint32]string{
		90402: "gfx942", 90010: "gfx90a", 90012: "gfx90c", 90500: "gfx950", 90006: "gfx906", 90008: "gfx908",
		100300: "gfx1030", 110000: "gfx1100", 110501: "gfx1151", 120001: "gfx1201", 120500: "gfx1250", 130000: "gfx1300",
	} {
		got, err := target.FromGFXVersion(v)
		if err != nil || got.String() != want || got.Vendor() != target.HIP {
			t.Errorf("FromGFXVersion(%d) = %v, %v; want %s", v, got, err, want)
		}
	}
	for _, v := range []uint32{0, 402, 90099, 91600, 1000000, 1<<32 - 1} {
		got, err := target.FromGFXVersion(v)
		var syntax *target.SyntaxError
		if !errors.As(err, &syntax) || !got.IsZero() {
			t.Errorf("FromGFXVersion(%d) = %v, %v", v, got, err)
		}
	}
}

// node is a properties file as the driver writes it, shortened.
func node(version string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("cpu_cores_count 0\nsimd_count 304\nlds_size_in_kb 64\n" +
		"gfx_target_version " + version + "\nvendor_id 4098\n")}
}

func TestFromKFD(t *testing.T) {
	sys := fstest.MapFS{
		"0/properties":   node("0"),
		"1/properties":   node("90402"),
		"2/properties":   node("90402"),
		"9/properties":   node("110000"),
		"10/properties":  node("90010"),
		"11/properties":  {Data: []byte("cpu_cores_count 64\n")}, // an old driver writes no version for a CPU
		"12/name":        {Data: []byte("no properties\n")},
		"03/properties":  node("100300"), // not a node's name
		"nonsense/other": {},
	}
	got, err := target.FromKFD(sys)
	var names []string
	for _, g := range got {
		names = append(names, g.String())
	}
	if s := strings.Join(names, " "); err != nil || s != "gfx942 gfx942 gfx1100 gfx90a" {
		t.Errorf("got %s, %v", s, err)
	}
}

func TestFromKFDBad(t *testing.T) {
	for _, version := range []string{"x", "", "-1", "99999999999", "402"} {
		_, err := target.FromKFD(fstest.MapFS{"3/properties": node(version)})
		if err == nil || !strings.Contains(err.Error(), "node 3") {
			t.Errorf("version %q: %v", version, err)
		}
	}
}

func TestFromKFDWithoutDriver(t *testing.T) {
	sys, err := fs.Sub(fstest.MapFS{"sys/other": {}}, "sys/class")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := target.FromKFD(sys); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, %v", got, err)
	}
}

// forbidding fails to open one file, as under a container's device rules.
type forbidding struct {
	fs.FS
	name string
}

func (f forbidding) Open(name string) (fs.File, error) {
	if name == f.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f.FS.Open(name)
}

func TestFromKFDForbiddenNode(t *testing.T) {
	sys := fstest.MapFS{"1/properties": node("90402"), "2/properties": node("90500")}
	got, err := target.FromKFD(forbidding{sys, "1/properties"})
	if err != nil || len(got) != 1 || got[0].String() != "gfx950" {
		t.Errorf("got %v, %v", got, err)
	}
}
