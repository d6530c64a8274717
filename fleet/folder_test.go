package fleet

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// serve serves a folder as web servers and buckets do, and returns the host.
func serve(t testing.TB, dir string) string {
	t.Helper()
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// readIndex returns the index of the folder "set" below dir.
func readIndex(t testing.TB, dir string) (index ocispec.Index) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "set", "index.json"))
	if err == nil {
		err = json.Unmarshal(data, &index)
	}
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// TestFolder pushes a set to a folder, and starts processes that pull it from a web server.
func TestFolder(t *testing.T) {
	f, dir := prebuilt(t), t.TempDir()
	private, public := newKeys(t)
	_, other := newKeys(t)
	local := "file://" + dir + "/set"
	rep := push(t, local, f.built, private)
	if again := push(t, local, f.built, private); again.Uploaded != 0 || again.Digest != rep.Digest || again.Key != rep.Key || rep.Key == "" {
		t.Errorf("second push: %+v, want nothing written, and digest and key of %+v", again, rep)
	}
	p := newProxy(t, serve(t, dir))
	remote := "http://" + p.Host + "/set"
	for _, c := range []struct{ name, noCompile, remote, keys string }{
		{"with a compiler", "", remote, public},
		{"without a compiler", "1", remote, public},
		{"pinned", "1", remote + "@" + rep.Digest, ""},
		{"in the file system", "1", local, public},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, f, c.remote, c.keys)
			n.env["AITER_NO_COMPILE"] = c.noCompile
			p.requests.Store(0)
			e, results, _, err := n.start()
			if err != nil || e.compiles != 0 || !strings.HasPrefix(results[0].Artifact.Path, filepath.Join(n.cache, "v2/pulled")) {
				t.Fatalf("%v, %d compiles, %v", err, e.compiles, results)
			}
			t.Logf("%d requests", p.requests.Load())
			p.requests.Store(0)
			if e, _, _, err := n.start(); err != nil || e.compiles != 0 || p.requests.Load() != 0 {
				t.Errorf("second start: %v, %d compiles, %d requests", err, e.compiles, p.requests.Load())
			}
		})
	}
	n := newNode(t, f, remote, other)
	if e, _, _, err := n.start(); err != nil || e.cause() != jit.PullUntrusted || e.compiles == 0 {
		t.Errorf("the key of another: %v, %q, %d compiles", err, e.cause(), e.compiles)
	}

	// a newer set replaces it; the older one can be pulled by its digest, and its signature is not that of the newer one
	newer := push(t, local, withGPU(t, f, []byte("code")), "")
	if _, err := Copy(t.Context(), parse(t, remote+"@"+rep.Digest), openCache(t, t.TempDir()), nil, Options{}); err != nil {
		t.Errorf("the older set: %v", err)
	}
	_, err := Copy(t.Context(), parse(t, remote), openCache(t, t.TempDir()), nil, Options{Keys: public})
	var refused *UntrustedError
	if !errors.As(err, &refused) || refused.Digest != newer.Digest || len(refused.Reasons) > 0 {
		t.Errorf("the newer set, which has no signature: %v", err)
	}
	_, err = Push(t.Context(), parse(t, remote), readOnly(t, f.built), nil, Options{})
	if err == nil || !strings.Contains(err.Error(), "file:///DIR") {
		t.Errorf("a push to a web server: %v", err)
	}
}

// TestFolderIsALayout uploads a folder to a registry with crane, which validates it. A node pulls the set from there.
func TestFolderIsALayout(t *testing.T) {
	f, dir, crane, r := prebuilt(t), filepath.Join(t.TempDir(), "set"), testenv.Tool(t, "crane"), startRegistry(t)
	rep := push(t, "file://"+dir, f.built, "")
	ref := r.Host + "/aiter/kernels:v1"
	for _, args := range [][]string{{"push", dir, ref}, {"validate", "--remote", ref}} {
		if out, err := exec.Command(crane, args...).CombinedOutput(); err != nil {
			t.Fatalf("crane %v: %v\n%s", args, err, out)
		}
	}
	if _, err := Copy(t.Context(), parse(t, r.Host+"/aiter/kernels@"+rep.Digest), openCache(t, t.TempDir()), nil, Options{}); err != nil {
		t.Error(err)
	}
}

// TestFolderFaults starts a node with each fault of a web server. The manifest has the digest that the index names, so that an edited one
// is damage; TestFolderIndex edits the index.
func TestFolderFaults(t *testing.T) {
	f, dir := prebuilt(t), t.TempDir()
	private, public := newKeys(t)
	rep := push(t, "file://"+dir+"/set", f.built, private)
	isManifest := func(r *http.Request) bool { return isOf(r, rep.Digest) }
	isSignature := func(r *http.Request) bool {
		for _, d := range readIndex(t, dir).Manifests {
			if d.ArtifactType == bundleType && isOf(r, d.Digest.String()) {
				return true
			}
		}
		return false
	}
	checkFaults(t, f, serve(t, dir), "http://%s/set", public, func() []fault {
		list := faults(isManifest, ofLayers(rep.Layers), isSignature)
		for i := range list {
			if list[i].name == "edited manifest" {
				list[i].cause = jit.PullDamaged
			}
			list[i].requests = 0 // the index precedes the manifest
		}
		return list
	})
}

// TestFolderIndex serves other indexes of a folder with a signed and a newer, unsigned set.
func TestFolderIndex(t *testing.T) {
	f, dir := prebuilt(t), t.TempDir()
	private, public := newKeys(t)
	signed := push(t, "file://"+dir+"/set", f.built, private)
	push(t, "file://"+dir+"/set", withGPU(t, f, []byte("code")), "")
	index := readIndex(t, dir)
	server := parse(t, "http://"+serve(t, dir)+"/set")
	// name returns an index that gives the name of the set to a digest.
	name := func(digest string) string {
		list := []ocispec.Descriptor{{Digest: godigest.Digest(digest), Annotations: map[string]string{ocispec.AnnotationRefName: folderTag}}}
		for _, d := range index.Manifests {
			if d.ArtifactType == bundleType {
				d.Annotations = nil // as other programs write it
				list = append(list, d)
			}
		}
		data, err := json.Marshal(ocispec.Index{Manifests: list})
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	var unsigned string
	for _, d := range index.Manifests {
		if d.ArtifactType != bundleType && d.Digest.String() != signed.Digest {
			unsigned = d.Digest.String()
		}
	}
	for _, c := range []struct {
		name, index string
		cause       jit.PullCause // "": the pull succeeds
		want        string
	}{
		{"signed set", name(signed.Digest), "", ""},
		{"unsigned set", name(unsigned), jit.PullUntrusted, errSubject.Error()},
		{"layer", name(signed.Layers[0].Digest), jit.PullDamaged, "the manifest is not JSON"},
		{"no such blob", name("sha256:" + someKey), jit.PullMissing, "status 404"},
		{"path", name("sha256:../../set/index.json"), jit.PullDamaged, "digest \"sha256:../../set/index.json\""},
		{"SHA-512", name("sha512:" + someKey + someKey), jit.PullMissing, "status 404"},
		{"no name", "{}", jit.PullDamaged, "has no manifest with the name"},
		{"no JSON", "<html>", jit.PullDamaged, "is not JSON"},
		{"endless", strings.Repeat(" ", maxManifest) + name(signed.Digest), jit.PullDamaged, "is not JSON of at most"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(dir, "set", "index.json"), []byte(c.index), 0o644); err != nil {
				t.Fatal(err)
			}
			to := openCache(t, t.TempDir())
			_, err := Copy(t.Context(), server, to, nil, Options{Keys: public})
			if err == nil && c.cause == "" {
				return
			}
			if err == nil || causeOf(err) != c.cause || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want the cause %q and %q", err, c.cause, c.want)
			}
			if list, _ := to.Artifacts(); len(list) > 0 {
				t.Errorf("%d artifacts were copied", len(list))
			}
		})
	}
}

// TestFolderRedirect pulls from a web server that requires a password and redirects the blobs to another server. That server gets no
// credential.
func TestFolderRedirect(t *testing.T) {
	f, dir := prebuilt(t), t.TempDir()
	rep := push(t, "file://"+dir+"/set", f.built, "")
	files := http.FileServer(http.Dir(dir))
	var blobs, leaks atomic.Int64
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		blobs.Add(1)
		if r.Header.Get("Authorization") != "" {
			leaks.Add(1)
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(storage.Close)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "secret" {
			w.Header().Set("Www-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.Redirect(w, r, storage.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(front.Close)
	ref := parse(t, front.URL+"/set@"+rep.Digest)
	pull := func() error {
		_, err := Copy(t.Context(), ref, openCache(t, t.TempDir()), nil, Options{})
		return err
	}
	docker := t.TempDir()
	t.Setenv("DOCKER_CONFIG", docker)
	if err := pull(); causeOf(err) != jit.PullDenied || blobs.Load() > 0 {
		t.Errorf("without a password: %v", err)
	}
	config := `{"auths": {"` + strings.TrimPrefix(front.URL, "http://") + `": {"auth": "` +
		base64.StdEncoding.EncodeToString([]byte("node:secret")) + `"}}}`
	if err := os.WriteFile(filepath.Join(docker, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := pull(); err != nil || blobs.Load() == 0 || leaks.Load() > 0 {
		t.Errorf("%v, %d requests to the other host, %d with a credential", err, blobs.Load(), leaks.Load())
	}
}

// TestFolderCopied copies a signed set from a registry to a folder, as oras cp -r does with the same library. The index then does not
// say which set a signature is of.
func TestFolderCopied(t *testing.T) {
	f, r, dir := prebuilt(t), startRegistry(t), t.TempDir()
	private, public := newKeys(t)
	rep := push(t, r.Host+"/aiter/kernels:v1", f.built, private)
	from, err := remote.NewRepository(r.Host + "/aiter/kernels")
	if err != nil {
		t.Fatal(err)
	}
	from.PlainHTTP = true
	to, err := oci.New(filepath.Join(dir, "set"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := oras.ExtendedCopy(t.Context(), from, "v1", to, folderTag, oras.DefaultExtendedCopyOptions); err != nil {
		t.Fatal(err)
	}
	got, err := Copy(t.Context(), parse(t, "http://"+serve(t, dir)+"/set"), openCache(t, t.TempDir()), nil, Options{Keys: public})
	if err != nil || got.Digest != rep.Digest || got.Key != rep.Key || got.Key == "" {
		t.Errorf("%+v, %v; want the signed set %s", got, err, rep.Digest)
	}
}
