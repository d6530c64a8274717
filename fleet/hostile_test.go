package fleet

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// entry is one entry of a hostile layer.
type entry struct {
	header tar.Header
	data   string
}

// file returns a regular file.
func file(name, data string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data))}, data}
}

// packEntries returns a layer and the size of its tar file.
func packEntries(t testing.TB, entries ...entry) (packed []byte, size int64) {
	t.Helper()
	var plain bytes.Buffer
	w := tar.NewWriter(&plain)
	for _, e := range entries {
		if err := w.WriteHeader(&e.header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return zipped(t, plain.Bytes()), int64(plain.Len())
}

// packCut returns a layer with the first bytes of the tar file of an entry, and the size of the part.
func packCut(t testing.TB, e entry, bytes int64) (packed []byte, size int64) {
	t.Helper()
	whole, _ := packEntries(t, e)
	zip, err := gzip.NewReader(strings.NewReader(string(whole)))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(io.LimitReader(zip, bytes))
	if err != nil {
		t.Fatal(err)
	}
	return zipped(t, plain), int64(len(plain))
}

// zipped returns bytes that are packed with gzip.
func zipped(t testing.TB, plain []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	_, err := zip.Write(plain)
	if err := errors.Join(err, zip.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const (
	someKey  = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	someFile = "v2/record/linked/01/" + someKey
)

// TestHostileLayers unpacks layers that no set has. Each is refused, and nothing is outside of the folder.
func TestHostileLayers(t *testing.T) {
	good, goodSize := packEntries(t, file(someFile, "x"))
	link := func(kind byte, name, to string) entry {
		return entry{tar.Header{Typeflag: kind, Name: name, Linkname: to}, ""}
	}
	for _, c := range []struct {
		name    string
		entries []entry
		want    string
	}{
		{"traversal", []entry{file("v2/record/linked/../../../../escaped", "x")}, "has a file"},
		{"parent", []entry{file("../escaped", "x")}, "has a file"},
		{"absolute", []entry{file("/tmp/escaped", "x")}, "has a file"},
		{"double slash", []entry{file("v2//record/linked/01/"+someKey, "x")}, "has a file"},
		{"dot", []entry{file("./"+someFile, "x")}, "has a file"},
		{"other shard", []entry{file("v2/record/linked/02/"+someKey, "x")}, "has a file"},
		{"symlink", []entry{link(tar.TypeSymlink, someFile, "/etc/passwd")}, "of type '2'"},
		{"symlink as folder", []entry{link(tar.TypeSymlink, "v2/record", "/tmp"), file(someFile, "x")}, "of type '2'"},
		{"hard link", []entry{link(tar.TypeLink, someFile, "/etc/passwd")}, "of type '1'"},
		{"device", []entry{link(tar.TypeChar, someFile, "")}, "of type '3'"},
		{"named pipe", []entry{link(tar.TypeFifo, someFile, "")}, "of type '6'"},
		{"folder of a file", []entry{link(tar.TypeDir, someFile+"/", "")}, "of type '5'"},
		{"other folder", []entry{link(tar.TypeDir, "v2/pulled/", "")}, "of type '5'"},
		{"lock", []entry{file("v2/lock/"+someKey, "x")}, "has a file"},
		{"index of digests", []entry{file("v2/filehash", "x")}, "has a file"},
		{"counts", []entry{file("v2/counts", "x")}, "has a file"},
		{"trimmed", []entry{file("v2/trimmed", "x")}, "has a file"},
		{"note", []entry{file("pulled.json", "{}")}, "has a file"},
		{"failure", []entry{file("v2/record/failure/01/"+someKey, "x")}, "has a file"},
		{"object", []entry{file("v2/blob/01/"+someKey, "x")}, "has a file"},
		{"hidden library", []entry{file("v2/artifact/"+someKey+"/.so", "x")}, "has a file"},
		{"file in an artifact", []entry{file("v2/artifact/"+someKey+"/run.sh", "x")}, "has a file"},
		{"older layout", []entry{file("v1/record/linked/01/"+someKey, "x")}, "has a file"},
		{"twice", []entry{file(someFile, "x"), file(someFile, "y")}, "twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			packed, size := packEntries(t, c.entries...)
			refuses(t, packed, size, c.want)
		})
	}
	bomb, bombSize := packEntries(t, file(someFile, strings.Repeat("\x00", 64<<20)))
	trailing := append(bytes.Clone(good), "more"...)
	twice := append(bytes.Clone(good), good...)
	cut := good[:len(good)-6]
	ends, endsSize := packCut(t, file(someFile, strings.Repeat("x", 1000)), 512+100)
	flipped := bytes.Clone(good)
	flipped[len(flipped)-5] ^= 1 // of the checksum
	for _, c := range []struct {
		name   string
		packed []byte
		size   int64
		want   string
	}{
		{"bomb", bomb, 1024, "of 67108864 bytes, expected at most 1024"},
		{"bomb of its size", bomb, bombSize / 2, "expected at most"},
		{"larger than declared", good, goodSize - 512, "has more than"},
		{"smaller than declared", good, goodSize + 512, "unpacked, expected"},
		{"bytes after the end", trailing, goodSize, "after its end"},
		{"two files", twice, goodSize, "after its end"},
		{"cut", cut, goodSize, "damaged"},
		{"tar file that ends in a file", ends, endsSize + 1000, `the layer ends in the file "` + someFile + `": unexpected EOF`},
		{"wrong checksum", flipped, goodSize, "damaged"},
		{"no gzip", []byte("plain"), 5, "not packed with gzip"},
		{"empty", nil, 0, "not packed with gzip"},
	} {
		t.Run(c.name, func(t *testing.T) { refuses(t, c.packed, c.size, c.want) })
	}
	t.Run("sparse", func(t *testing.T) {
		packed, size := packSparse(t, 1<<20)
		refuses(t, packed, size, "a sparse file")
	})
	root, dir := rootIn(t)
	if err := unpack(bytes.NewReader(good), goodSize, root); err != nil {
		t.Errorf("a good layer: %v", err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "set", someFile)); err != nil || string(data) != "x" {
		t.Errorf("%q %v", data, err)
	}
}

// packSparse returns a layer with a file of so many bytes that are a hole. Package tar does not write such files.
func packSparse(t testing.TB, hole int) (packed []byte, size int64) {
	t.Helper()
	var plain bytes.Buffer
	block := func(name string, kind byte, data string) {
		var b [512]byte
		copy(b[:], name)
		copy(b[100:], fmt.Sprintf("%07o\x00%07o\x00%07o\x00%011o\x00%011o\x00        %c", 0o644, 0, 0, len(data), 0, kind))
		copy(b[257:], "ustar\x0000")
		sum := 0
		for _, x := range b {
			sum += int(x)
		}
		copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
		plain.Write(b[:])
		plain.WriteString(data + strings.Repeat("\x00", -len(data)&511))
	}
	records := ""
	for _, r := range []string{"major=1", "minor=0", "name=" + someFile, fmt.Sprintf("realsize=%d", hole)} {
		r = "GNU.sparse." + r
		n := len(r) + len(" \n") + 2 // with the digits of n itself
		if n > 99 {
			n++
		}
		records += fmt.Sprintf("%d %s\n", n, r)
	}
	block("pax", tar.TypeXHeader, records)
	fragments := fmt.Sprintf("1\n%d\n0\n", hole)
	block("file", tar.TypeReg, fragments+strings.Repeat("\x00", -len(fragments)&511))
	plain.Write(make([]byte, 1024))
	return zipped(t, plain.Bytes()), int64(plain.Len())
}

func rootIn(t testing.TB) (root *os.Root, above string) {
	t.Helper()
	above = t.TempDir()
	if err := os.Mkdir(filepath.Join(above, "set"), 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(filepath.Join(above, "set"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root, above
}

// refuses checks that a layer is damage, and that it wrote only entries of a cache below the folder.
func refuses(t *testing.T, packed []byte, size int64, want string) {
	t.Helper()
	root, above := rootIn(t)
	err := unpack(bytes.NewReader(packed), size, root)
	var damage *DamageError
	if !errors.As(err, &damage) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want damage with %q", err, want)
	}
	checkTree(t, above)
}

// checkTree checks that a folder has nothing but the folder set, with regular files of at most 1 kB.
func checkTree(t *testing.T, above string) {
	t.Helper()
	err := filepath.WalkDir(above, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		rel, _ := filepath.Rel(above, path)
		if err == nil && (!info.Mode().IsRegular() || !strings.HasPrefix(rel, "set/v2/") || info.Size() > 1024) {
			t.Errorf("%s was written (%s, %d bytes)", rel, info.Mode(), info.Size())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func FuzzUnpack(f *testing.F) {
	good, size := packEntries(f, file(someFile, "x"), file("v2/artifact/"+someKey+"/artifact.json", "{}"))
	f.Add(good, size)
	f.Add(good[:20], size)
	f.Fuzz(func(t *testing.T, packed []byte, size int64) {
		if size < 0 || size > 1<<20 {
			return
		}
		root, above := rootIn(t)
		_ = unpack(bytes.NewReader(packed), size, root)
		var total int64
		_ = filepath.WalkDir(above, func(path string, e fs.DirEntry, err error) error {
			if info, errInfo := e.Info(); errInfo == nil && !e.IsDir() {
				total += info.Size()
				if !info.Mode().IsRegular() || !strings.HasPrefix(path, filepath.Join(above, "set", "v2")) {
					t.Errorf("%s was written", path)
				}
			}
			return err
		})
		if total > size {
			t.Errorf("%d bytes were written, at most %d", total, size)
		}
	})
}

func FuzzManifest(f *testing.F) {
	raw, _, err := newManifest(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":"` + ArtifactType + `","layers":[{"size":-1}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		set, err := parseManifest(raw)
		var damage *DamageError
		if err != nil && !errors.As(err, &damage) {
			t.Fatal(err)
		}
		for i := 0; err == nil && i < len(set.layers); i++ {
			if l := set.layers[i]; l.Size < 0 || l.Size > maxLayer || l.Packed < 0 || l.Packed > maxLayer || l.Target == "" {
				t.Errorf("layer %+v", l)
			}
		}
	})
}

// TestSignatures changes each part of a signed bundle.
func TestSignatures(t *testing.T) {
	private, public := newKeys(t)
	signer, err := LoadSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := LoadKeys(public)
	if err != nil {
		t.Fatal(err)
	}
	digest := "sha256:" + someKey
	good, err := signer.sign(digest)
	if err != nil {
		t.Fatal(err)
	}
	if key, err := verifyBundle(good, digest, keys); err != nil || key.ID != signer.ID {
		t.Fatalf("%v %v", key, err)
	}
	other := "sha256:" + strings.Repeat("0", 64)
	if _, err := verifyBundle(good, other, keys); !errors.Is(err, errSubject) {
		t.Errorf("the signature of another manifest: %v", err)
	}
	if _, err := verifyBundle(good, digest, nil); !errors.Is(err, errOtherKey) {
		t.Errorf("without keys: %v", err)
	}
	accepted := 0
	var before bundle
	if err := json.Unmarshal(good, &before); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if _, err := verifyBundle(bad, digest, keys); err == nil {
			accepted++
			var after bundle
			// The key hint is not signed, because only accepted keys verify. The last digit of base64 has bits without a meaning.
			if err := json.Unmarshal(bad, &after); err != nil || !reflect.DeepEqual(before.Envelope, after.Envelope) {
				t.Errorf("a flipped bit of byte %d is accepted: %s", i, bad)
			}
		}
	}
	if accepted == len(good) {
		t.Error("nothing is checked")
	}
}
