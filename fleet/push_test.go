package fleet

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/testenv"
)

// TestPackIsDeterministic packs equal caches in two folders and compares the bytes.
func TestPackIsDeterministic(t *testing.T) {
	f := prebuilt(t)
	dir := withGPU(t, f, []byte("code"))
	copied := openCache(t, filepath.Join(t.TempDir(), "other"))
	if err := copied.CopyFrom(readOnly(t, dir)); err != nil {
		t.Fatal(err)
	}
	var manifests []string
	for _, d := range []*cache.Dir{readOnly(t, dir), copied} {
		layers, err := pack(d, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		checkHeaders(t, layers)
		raw, _, err := newManifest(layers)
		if err != nil {
			t.Fatal(err)
		}
		manifests = append(manifests, string(raw))
		set, err := parseManifest(raw)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, l := range set.layers {
			names = append(names, l.Target+" "+l.Module)
		}
		if want := []string{"cpu ", "cpu module_aiter_ffi", "cpu module_small", "gfx942 ", "gfx942 module_small"}; !slices.Equal(names, want) {
			t.Errorf("layers %q, want %q", names, want)
		}
		if n := len(set.layersFor("module_small", "gfx942")); n != 2 {
			t.Errorf("a node with gfx942 takes %d layers, want its records and one artifact", n)
		}
		if set.layersFor("module_small", "gfx950") != nil || set.layersFor("module_other", "cpu") != nil {
			t.Error("layers without an artifact are no set for a node")
		}
	}
	if manifests[0] != manifests[1] {
		t.Errorf("manifests differ:\n%s\n%s", manifests[0], manifests[1])
	}
}

// checkHeaders checks that headers of files do not depend on the machine.
func checkHeaders(t *testing.T, layers []packedLayer) {
	t.Helper()
	for _, l := range layers {
		f, err := os.Open(l.path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		zip, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		archive := tar.NewReader(zip)
		for {
			h, err := archive.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.ModTime.Unix() != 0 || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Mode != 0o644 && h.Mode != 0o755 {
				t.Errorf("header %+v", h)
			}
		}
	}
}

// TestPushCopy pushes a set to a real registry twice, checks it with crane, and copies a target of it.
func TestPushCopy(t *testing.T) {
	f, r := prebuilt(t), startRegistry(t)
	private, public := newKeys(t)
	dir := withGPU(t, f, []byte("code"))
	ref := r.Host + "/aiter/kernels:v1"
	first := push(t, ref, dir, private)
	if first.Uploaded != 5+1+1+3 { // layers, configuration, manifest, signature of 3
		t.Errorf("uploaded %d", first.Uploaded)
	}
	if again := push(t, ref, dir, private); again.Uploaded != 0 || again.Digest != first.Digest || again.Key != first.Key || again.Key == "" {
		t.Errorf("second push: %+v, want nothing uploaded, and digest and key of %+v", again, first)
	}
	if out, err := exec.Command(testenv.Tool(t, "crane"), "validate", "--remote", ref).CombinedOutput(); err != nil {
		t.Errorf("crane validate: %v\n%s", err, out)
	}
	to := openCache(t, t.TempDir())
	rep, err := Copy(t.Context(), parse(t, ref), to, []string{"gfx942"}, Options{Keys: public})
	if err != nil {
		t.Fatal(err)
	}
	artifacts, err := to.Artifacts()
	if err != nil || len(artifacts) != 1 || artifacts[0].Target != "gfx942" || len(rep.Layers) != 2 {
		t.Errorf("%v %v %+v, want the artifact for gfx942", artifacts, err, rep)
	}
	all := openCache(t, t.TempDir())
	if _, err := Copy(t.Context(), parse(t, r.Host+"/aiter/kernels@"+first.Digest), all, nil, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(all.Intact(), to.Intact()); err != nil {
		t.Error(err)
	}
	if artifacts, err := all.Artifacts(); err != nil || len(artifacts) != 3 {
		t.Errorf("%v %v, want 3 artifacts", artifacts, err)
	}
	if _, err := Copy(t.Context(), parse(t, ref), to, []string{"gfx90a"}, Options{Keys: public}); !errors.Is(err, errAbsent) {
		t.Errorf("a target that the set lacks: %v", err)
	}
}

// TestPushReadsBack damages a stored blob. The registry "has" it, so that only reading it shows the damage.
func TestPushReadsBack(t *testing.T) {
	f, r := prebuilt(t), startRegistry(t)
	ref := r.Host + "/aiter/kernels:v1"
	rep := push(t, ref, f.built, "")
	hex := strings.TrimPrefix(rep.Layers[1].Digest, "sha256:")
	path := filepath.Join(r.Dir, "data/docker/registry/v2/blobs/sha256", hex[:2], hex, "data")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Push(t.Context(), parse(t, ref), readOnly(t, f.built), nil, Options{})
	var stored *StoredError
	if !errors.As(err, &stored) || !strings.Contains(err.Error(), hex) {
		t.Errorf("push to a registry with a damaged blob: %v", err)
	}
}

// TestUntrusted checks that a set without a pin or a signature of an accepted key is never unpacked.
func TestUntrusted(t *testing.T) {
	f, r := prebuilt(t), startRegistry(t)
	private, public := newKeys(t)
	_, other := newKeys(t)
	signed, unsigned := r.Host+"/aiter/signed:v1", r.Host+"/aiter/unsigned:v1"
	rep := push(t, signed, f.built, private)
	push(t, unsigned, f.built, "")
	both := t.TempDir()
	for i, path := range []string{other, public} {
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(both, string(rune('a'+i))+".pub"), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, ref, keys, want string }{
		{"signed", signed, public, ""},
		{"two keys", signed, both, ""},
		{"pinned", r.Host + "/aiter/unsigned@" + rep.Digest, "", ""},
		{"no keys", signed, "", "it has no digest and AITER_JIT_KEYS names no keys"},
		{"another key", signed, other, "its signatures are refused: it was made with another key"},
		{"unsigned", unsigned, public, "it has no signature"},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := openCache(t, t.TempDir())
			_, err := Copy(t.Context(), parse(t, c.ref), to, nil, Options{Keys: c.keys})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if list, _ := to.Artifacts(); (len(list) == 0) != (c.want != "") {
				t.Errorf("%d artifacts were copied", len(list))
			}
		})
	}
}

// TestCosign checks signatures of the real cosign, and lets it check ours.
func TestCosign(t *testing.T) {
	f, r, cosign := prebuilt(t), startRegistry(t), testenv.Tool(t, "cosign")
	private, public := newKeys(t)
	dir := t.TempDir()
	run := func(args ...string) error {
		cmd := exec.Command(cosign, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "COSIGN_PASSWORD=", "HOME="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = errors.Join(err, errors.New(string(out)))
		}
		return err
	}
	verify := func(key, ref string) error {
		return run("verify", "--key", key, "--insecure-ignore-tlog=true", "--allow-http-registry", ref)
	}
	ours := push(t, r.Host+"/aiter/ours:v1", f.built, private)
	at := r.Host + "/aiter/ours@" + ours.Digest
	if err := verify(public, at); err != nil {
		t.Errorf("cosign does not verify our signature: %v", err)
	}
	_, other := newKeys(t)
	if err := verify(other, at); err == nil {
		t.Error("cosign verifies our signature with another key")
	}

	theirs := push(t, r.Host+"/aiter/theirs:v1", f.built, "")
	at = r.Host + "/aiter/theirs@" + theirs.Digest
	if err := run("generate-key-pair"); err != nil {
		t.Fatal(err)
	}
	err := run("sign", "--key", "cosign.key", "--tlog-upload=false", "--use-signing-config=false", "--allow-http-registry", "--yes", at)
	if err != nil {
		t.Fatal(err)
	}
	if err := verify("cosign.pub", at); err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(dir, "cosign.pub")
	if _, err := Copy(t.Context(), parse(t, r.Host+"/aiter/theirs:v1"), openCache(t, t.TempDir()), nil, Options{Keys: keys}); err != nil {
		t.Errorf("we do not verify the signature of cosign: %v", err)
	}
	if _, err := Copy(t.Context(), parse(t, r.Host+"/aiter/theirs:v1"), openCache(t, t.TempDir()), nil, Options{Keys: other}); err == nil {
		t.Error("we verify the signature of cosign with another key")
	}
	if _, err := LoadSigner(filepath.Join(dir, "cosign.key")); err == nil || !strings.Contains(err.Error(), "password") {
		t.Errorf("a key with a password: %v", err)
	}
}
