package fleet

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

// blobPath returns the file of a blob of the folder "set" below dir.
func blobPath(dir, digest string) string {
	return filepath.Join(dir, "set", "blobs", "sha256", strings.TrimPrefix(digest, "sha256:"))
}

// store stores a blob and returns its digest. A value that is no []byte is stored as JSON.
func store(t *testing.T, dir string, value any) string {
	t.Helper()
	data, ok := value.([]byte)
	var err error
	if !ok {
		data, err = json.Marshal(value)
	}
	digest := godigest.FromBytes(data).String()
	if err = errors.Join(err, os.WriteFile(blobPath(dir, digest), data, 0o644)); err != nil {
		t.Fatal(err)
	}
	return digest
}

// load reads a blob that is JSON.
func load[V any](t *testing.T, dir, digest string) (v V) {
	t.Helper()
	data, err := os.ReadFile(blobPath(dir, digest))
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestManifestTexts pulls sets with wrong manifests. The references have the digests of these manifests.
func TestManifestTexts(t *testing.T) {
	f, dir := prebuilt(t), t.TempDir()
	rep := push(t, "file://"+dir+"/set", f.built, "")
	host := serve(t, dir)
	const records, small = 0, 1 // layers
	annotate := func(layer int, name, value string) func(*ocispec.Manifest) {
		return func(m *ocispec.Manifest) { m.Layers[layer].Annotations[name] = value }
	}
	without := func(layer int, names ...string) func(*ocispec.Manifest) {
		return func(m *ocispec.Manifest) {
			maps.DeleteFunc(m.Layers[layer].Annotations, func(name, _ string) bool { return slices.Contains(names, name) })
		}
	}
	for _, c := range []struct {
		name string
		edit func(*ocispec.Manifest)
		want string
	}{
		{"type", func(m *ocispec.Manifest) { m.MediaType = "x" },
			`the manifest is of type "x", expected "application/vnd.oci.image.manifest.v1+json"`},
		{"image", func(m *ocispec.Manifest) { m.ArtifactType = "" },
			`the reference leads to an artifact of type "", expected a set of kernels (` + ArtifactType + `), as aiterctl push makes it`},
		{"many layers", func(m *ocispec.Manifest) { m.Layers = make([]ocispec.Descriptor, maxLayers+1) },
			"the manifest has 20001 layers, expected at most 20000"},
		{"type of a layer", func(m *ocispec.Manifest) { m.Layers[small].MediaType = "x" },
			`layer 1: it is of type "x", expected "application/vnd.oci.`},
		{"digest", func(m *ocispec.Manifest) { m.Layers[records].Digest = "md5:1" }, `layer 0: its digest "md5:1" is not a SHA-256`},
		{"size", without(records, annotationSize), `bytes packed and "" unpacked, expected 0 to 8589934592`},
		{"negative size", annotate(records, annotationSize, "-1"), `and "-1" unpacked`},
		{"no target", without(records, annotationTarget), "layer 0: it has no target"},
		{"module alone", without(small, annotationArtifact), "layer 1: it has a module without an artifact or an artifact without a module"},
		{"other module", annotate(small, annotationModule, "module_other"), "of module_other for cpu"},
		{"undeclared artifact", without(small, annotationModule, annotationArtifact, annotationPart), "the layers have 2 artifacts, expected 1"},
		{"no records", func(m *ocispec.Manifest) { m.Layers = m.Layers[1:] }, "is not found; export it again"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := load[ocispec.Manifest](t, dir, rep.Digest)
			c.edit(&m)
			_, err := Copy(t.Context(), parse(t, "http://"+host+"/set@"+store(t, dir, m)), openCache(t, t.TempDir()), nil, Options{})
			if err == nil || causeOf(err) != jit.PullDamaged || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want the cause %s and %q", err, jit.PullDamaged, c.want)
			}
		})
	}
}

// TestSignatureTexts pulls a set with wrong signatures, some of which its key has made.
func TestSignatureTexts(t *testing.T) {
	f, dir := prebuilt(t), t.TempDir()
	private, public := newKeys(t)
	rep := push(t, "file://"+dir+"/set", f.built, private)
	server := parse(t, "http://"+serve(t, dir)+"/set")
	signer, err := LoadSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	index := readIndex(t, dir)
	at := slices.IndexFunc(index.Manifests, func(d ocispec.Descriptor) bool { return d.ArtifactType == bundleType })
	manifest := load[ocispec.Manifest](t, dir, index.Manifests[at].Digest.String())
	// signing returns a change that puts a signed payload into the bundle.
	signing := func(payload string) func(*ocispec.Manifest) {
		hash := sha256.Sum256(preAuth(payloadType, []byte(payload)))
		sig, err := ecdsa.SignASN1(rand.Reader, signer.private, hash[:])
		if err != nil {
			t.Fatal(err)
		}
		return func(m *ocispec.Manifest) {
			b := load[bundle](t, dir, m.Layers[0].Digest.String())
			b.Envelope = &envelope{[]byte(payload), payloadType, []signature{{sig}}}
			data, _ := json.Marshal(b) // it was read from JSON
			m.Layers[0].Digest, m.Layers[0].Size = godigest.Digest(store(t, dir, data)), int64(len(data))
		}
	}
	const statement, notBundle = "it is not a signature of cosign", "it is not a Sigstore bundle 0.3 with a DSSE envelope and one signature"
	for _, c := range []struct {
		name string
		edit func(*ocispec.Manifest) // nil: the manifest of the signature is not JSON
		want string
	}{
		{"manifest not JSON", nil, "its manifest: invalid character"},
		{"other set", func(m *ocispec.Manifest) { m.Subject.Digest = godigest.Digest(rep.Layers[0].Digest) }, errSubject.Error()},
		{"no subject", func(m *ocispec.Manifest) { m.Subject = nil }, errSubject.Error()},
		{"no bundle", func(m *ocispec.Manifest) { m.Layers[0].MediaType = "x" }, notBundle},
		{"large bundle", func(m *ocispec.Manifest) { m.Layers[0].Size = maxBundle + 1 }, "expected a SHA-256 and at most 1048576 bytes"},
		{"lost bundle", func(m *ocispec.Manifest) { m.Layers[0].Digest = "sha256:" + someKey }, "status 404, Not Found; check the reference"},
		{"not JSON", func(m *ocispec.Manifest) {
			m.Layers[0].Digest, m.Layers[0].Size = godigest.Digest(store(t, dir, []byte("<html>"))), 6
		}, notBundle + ": invalid character"},
		{"longer bundle", func(m *ocispec.Manifest) { m.Layers[0].Size -= 10 }, "bytes"},
		{"other statement", signing(`{"_type": "x"}`), statement},
		{"payload not JSON", signing("x"), statement + ": invalid character"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := manifest
			m.Layers = slices.Clone(manifest.Layers)
			subject := *manifest.Subject
			m.Subject = &subject
			data, err := []byte("<html>"), error(nil)
			if c.edit != nil {
				c.edit(&m)
				data, err = json.Marshal(m)
			}
			changed := index
			changed.Manifests = slices.Clone(index.Manifests)
			changed.Manifests[at].Digest, changed.Manifests[at].Size = godigest.Digest(store(t, dir, data)), int64(len(data))
			text, errIndex := json.Marshal(changed)
			if err = errors.Join(err, errIndex, os.WriteFile(filepath.Join(dir, "set", "index.json"), text, 0o644)); err != nil {
				t.Fatal(err)
			}
			_, err = Copy(t.Context(), server, openCache(t, t.TempDir()), nil, Options{Keys: public})
			var refused *UntrustedError
			if !errors.As(err, &refused) || len(refused.Reasons) != 1 || !strings.Contains(refused.Reasons[0], c.want) {
				t.Fatalf("%v, want the reason %q", err, c.want)
			}
			for _, part := range []string{
				"no key of AITER_JIT_KEYS has signed the manifest " + rep.Digest + " (its signatures are refused: ",
				"; sign it with aiterctl push --sign or cosign sign --key, or add the key that signed it to AITER_JIT_KEYS",
			} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v, want %q", err, part)
				}
			}
			got, err := Inspect(t.Context(), server, Options{Keys: public})
			if err != nil || got.Digest != rep.Digest || !strings.Contains(got.Refused, c.want) {
				t.Errorf("inspected: %+v, %v; want it refused with %q", got, err, c.want)
			}
		})
	}
}

// TestServerTexts pulls from web servers with wrong answers, and with wrong settings.
func TestServerTexts(t *testing.T) {
	server := func(start func(http.Handler) *httptest.Server, handler http.HandlerFunc) string {
		s := start(handler)
		t.Cleanup(s.Close)
		return s.URL
	}
	answers := func(code int) string {
		return server(httptest.NewServer, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
	}
	redirects := func(start func(http.Handler) *httptest.Server, to string) string {
		return server(start, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to+r.URL.Path, http.StatusFound) })
	}
	loop := redirects(httptest.NewServer, "")
	tls := redirects(httptest.NewTLSServer, loop)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	ca := pemBlock("CERTIFICATE", secure.Certificate().Raw, nil) // of all servers of httptest
	// certs returns a folder with files for the server of a URL.
	certs := func(url string, files map[string][]byte) string {
		dir := t.TempDir()
		host := filepath.Join(dir, url[strings.LastIndex(url, "/")+1:])
		err := os.Mkdir(host, 0o755)
		for name, data := range files {
			err = errors.Join(err, os.WriteFile(filepath.Join(host, name), data, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	docker := t.TempDir()
	t.Setenv("DOCKER_CONFIG", docker)
	for _, c := range []struct{ name, url, certs, docker, want string }{
		{"other status", answers(http.StatusTeapot), "", "{}",
			"status 418, I'm a teapot; expected status 200: check that the server has the API of a container registry, or serves the folder"},
		{"forbidden", answers(http.StatusForbidden), "", "{}",
			"status 403, Forbidden; log in to the server (docker login), as a user who may read the repository"},
		{"missing", answers(http.StatusNotFound), "", "{}", "status 404, Not Found; check the reference, and whether the set was pushed there"},
		{"busy", answers(http.StatusTooManyRequests), "", "{}", "status 429, Too Many Requests; try again later"},
		{"redirects", loop, "", "{}", "more than 5 redirects from " + loop + ", the last one to " + loop + "; name the server that has the set"},
		{"redirect without TLS", tls, certs(tls, map[string][]byte{"ca.crt": ca}), "{}",
			"refused redirect from " + tls + " to " + loop + ", which has no TLS; let the server redirect to https only"},
		{"found with the authority", secure.URL, certs(secure.URL, map[string][]byte{"ca.crt": ca}), "{}", "status 404"},
		{"authority not PEM", secure.URL, certs(secure.URL, map[string][]byte{"ca.crt": []byte("x")}), "{}", "ca.crt has no certificate in PEM"},
		{"client certificate", secure.URL, certs(secure.URL, map[string][]byte{"client.cert": ca}), "{}", "client certificate of 127.0.0.1:"},
		{"docker's configuration", secure.URL, "", "{", "the credentials of docker: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(docker, "config.json"), []byte(c.docker), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Copy(t.Context(), parse(t, c.url+"/set@sha256:"+someKey), openCache(t, t.TempDir()), nil, Options{Certs: c.certs})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestPushTexts pushes what cannot be pushed, and to registries that refuse it.
func TestPushTexts(t *testing.T) {
	f, r := prebuilt(t), startRegistry(t)
	private, public := newKeys(t)
	old := push(t, r.Host+"/aiter/kernels:old", withGPU(t, f, []byte("code")), "")
	p := newProxy(t, r.Host)
	isUpload := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/blobs/uploads/") }
	isSignature := func(r *http.Request) bool {
		return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/sha256:")
	}
	signer, err := LoadSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	isOld := func(w http.ResponseWriter, r *http.Request, real http.Handler) bool {
		if r.Method == http.MethodGet && isManifest(r) {
			r.URL.Path = strings.Replace(r.URL.Path, "/v1", "/old", 1)
		}
		return false
	}
	for _, c := range []struct {
		name, ref string
		from      *cache.Dir
		fault     handler
		want      string
	}{
		{"refused signature", p.Host + "/aiter/kernels:v1", readOnly(t, f.built), when(isSignature, status(http.StatusInsufficientStorage)),
			"signature of sha256:"},
		{"pinned", p.Host + "/aiter/kernels@sha256:" + someKey, readOnly(t, f.built), nil,
			"it has a digest, which follows from the pushed content; give a tag"},
		{"empty cache", p.Host + "/aiter/kernels:v1", openCache(t, t.TempDir()), nil, "has no artifacts; aiterctl build --output makes one"},
		{"full disk", p.Host + "/aiter/new:v1", readOnly(t, f.built), when(isUpload, status(http.StatusInsufficientStorage)),
			"upload of sha256:"},
		{"moved tag", p.Host + "/aiter/kernels:v1", readOnly(t, f.built), isOld,
			"the registry does not return what was pushed to " + p.Host + "/aiter/kernels:v1: the tag leads to the manifest " + old.Digest +
				", expected sha256:"},
	} {
		p.set(c.fault)
		_, err := Push(t.Context(), parse(t, c.ref), c.from, signer, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	p.set(when(isReferrers, status(http.StatusTeapot)))
	_, err = Copy(t.Context(), parse(t, p.Host+"/aiter/kernels:old"), openCache(t, t.TempDir()), nil, Options{Keys: public})
	if want := "the signatures of " + old.Digest + ": "; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("signatures that cannot be read: %v, want %q", err, want)
	}
}

// TestTargetTexts requests targets and a module that a set does not have.
func TestTargetTexts(t *testing.T) {
	f, dir := prebuilt(t), t.TempDir()
	rep := push(t, "file://"+dir+"/set", f.built, "")
	ref := parse(t, "http://"+serve(t, dir)+"/set@"+rep.Digest)
	_, err := Warm(t.Context(), ref, openCache(t, t.TempDir()), []string{"gfx942"}, Options{})
	want := "the set has no such artifact: the set " + ref.String() + " has [cpu], expected one of [gfx942]"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	m := load[ocispec.Manifest](t, dir, rep.Digest)
	m.Layers[1].Annotations[annotationTarget] = "gfx942:fast"
	_, err = Warm(t.Context(), ref.at(store(t, dir, m)), openCache(t, t.TempDir()), nil, Options{})
	if want := "layer " + rep.Layers[1].Digest + ": "; causeOf(err) != jit.PullDamaged || !strings.Contains(err.Error(), want) {
		t.Errorf("a set with a target that does not exist: %v, want the cause %s and %q", err, jit.PullDamaged, want)
	}
	_, err = Copy(t.Context(), ref, openCache(t, t.TempDir()), []string{"gfx942"}, Options{})
	if want := "has [cpu], and none of [gfx942]"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	s := newSource(ref, openCache(t, t.TempDir()), slog.New(slog.DiscardHandler), Options{})
	_, err = s.Pull(t.Context(), jit.Request{Module: "module_other", Target: target.Host()})
	var pull *jit.PullError
	if !errors.As(err, &pull) || pull.Cause != jit.PullAbsent || !strings.HasSuffix(err.Error(), "no such artifact: module_other for cpu") {
		t.Errorf("%v, want the cause %s and the module", err, jit.PullAbsent)
	}
}

// TestRefusedTexts describes pulled caches for programs with other variables.
func TestRefusedTexts(t *testing.T) {
	f, dir := prebuilt(t), t.TempDir()
	_, public := newKeys(t)
	rep := push(t, "file://"+dir+"/set", f.built, "")
	remote := "http://" + serve(t, dir) + "/set"
	below := openCache(t, t.TempDir())
	if _, err := Warm(t.Context(), parse(t, remote+"@"+rep.Digest), below, nil, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ remote, keys, want string }{
		{remote + "@" + rep.Digest, "", ""},
		{"", "", "AITER_JIT_REMOTE is unset"},
		{remote + "@sha256:" + someKey, "", "it is of the set " + rep.Digest + ", expected sha256:" + someKey},
		{remote, public, "no key of AITER_JIT_KEYS has signed it (its reference was pinned)"},
		{remote, "", "it has no digest and AITER_JIT_KEYS names no keys"},
		{remote, "/nowhere", `AITER_JIT_KEYS is "/nowhere": key file /nowhere`},
	} {
		env := map[string]string{"AITER_JIT_REMOTE": c.remote, "AITER_JIT_KEYS": c.keys}
		st := ReadState(below, func(name string) string { return env[name] })
		if len(st.Caches) != 2 {
			t.Fatalf("%d pulled caches, want 2", len(st.Caches))
		}
		for _, got := range st.Caches {
			if (got.Refused == "") != (c.want == "") || !strings.Contains(got.Refused, c.want) || got.Digest != rep.Digest {
				t.Errorf("%s with keys %q: %+v, want refused with %q", c.remote, c.keys, got, c.want)
			}
		}
	}
	for _, p := range below.PulledCaches() {
		if err := os.WriteFile(filepath.Join(p.Path, "pulled.json"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, got := range ReadState(below, func(string) string { return "" }).Caches {
		if !strings.HasPrefix(got.Refused, "its note is damaged: invalid character") {
			t.Errorf("%+v, want the damage of the note", got)
		}
	}
}
