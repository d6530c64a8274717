package fleet

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/aiter-go/aiter/internal/cache"
)

// packedLayer is a layer in a file.
type packedLayer struct {
	path       string
	descriptor ocispec.Descriptor
	diffID     digest.Digest // of the tar file
}

func platform() ocispec.Platform {
	return ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}
}

// pack writes the layers of a prebuilt cache to a folder: for each target its records, then its artifacts. Equal caches give
// equal layers: names are sorted, and owners, modes and times are constant.
func pack(from *cache.Dir, to string) ([]packedLayer, error) {
	if err := from.Intact(); err != nil {
		return nil, err
	}
	artifacts, err := from.Artifacts()
	if err != nil {
		return nil, err
	}
	if len(artifacts) == 0 {
		return nil, fmt.Errorf("the cache in %s has no artifacts; aiterctl build --output makes one", from.Path())
	}
	slices.SortFunc(artifacts, func(a, b cache.Artifact) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Module, b.Module), cmp.Compare(a.Part, b.Part), cmp.Compare(a.ID, b.ID))
	})
	records := map[string]map[string]bool{} // by target
	for _, a := range artifacts {
		if records[a.Target] == nil {
			records[a.Target] = map[string]bool{}
		}
		for _, name := range from.RecordFiles(a) {
			records[a.Target][name] = true
		}
	}
	var layers []packedLayer
	add := func(names []string, annotations map[string]string) error {
		l, err := packLayer(from.Path(), names, filepath.Join(to, strconv.Itoa(len(layers))), annotations)
		layers = append(layers, l)
		return err
	}
	for i, a := range artifacts {
		if i == 0 || a.Target != artifacts[i-1].Target {
			names := slices.Sorted(maps.Keys(records[a.Target]))
			if err := add(names, map[string]string{annotationTarget: a.Target}); err != nil {
				return nil, err
			}
		}
		err := add(cache.ArtifactFiles(a), map[string]string{
			annotationTarget: a.Target, annotationModule: a.Module, annotationPart: a.Part, annotationArtifact: a.ID,
		})
		if err != nil {
			return nil, err
		}
	}
	return layers, nil
}

// packLayer writes the files of a folder to a tar file that is packed with gzip.
func packLayer(root string, names []string, to string, annotations map[string]string) (l packedLayer, err error) {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return l, err
	}
	defer f.Close()
	packed, plain := newCounter(f), (*counter)(nil)
	zip, err := gzip.NewWriterLevel(packed, gzip.BestCompression)
	if err != nil {
		return l, err
	}
	plain = newCounter(zip)
	if err := writeTar(plain, root, names); err != nil {
		return l, err
	}
	if err := zip.Close(); err != nil {
		return l, err
	}
	annotations[annotationSize] = strconv.FormatInt(plain.n, 10)
	l = packedLayer{path: to, diffID: plain.digest(), descriptor: ocispec.Descriptor{
		MediaType: ocispec.MediaTypeImageLayerGzip, Digest: packed.digest(), Size: packed.n, Annotations: annotations,
	}}
	return l, f.Close()
}

// writeTar writes files and the folders above them.
func writeTar(w io.Writer, root string, names []string) error {
	out := tar.NewWriter(w)
	made := map[string]bool{".": true}
	for _, name := range names {
		for _, dir := range foldersAbove(name) {
			if made[dir] {
				continue
			}
			made[dir] = true
			h := tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: time.Unix(0, 0)}
			if err := out.WriteHeader(&h); err != nil {
				return err
			}
		}
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		h := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: time.Unix(0, 0)}
		if err := out.WriteHeader(&h); err != nil {
			return err
		}
		if _, err := out.Write(data); err != nil {
			return err
		}
	}
	return out.Close()
}

// foldersAbove returns "v2", "v2/artifact" for "v2/artifact/x".
func foldersAbove(name string) []string {
	var list []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		list = append(list, dir)
	}
	slices.Reverse(list)
	return list
}

// counter counts and hashes what passes to a writer.
type counter struct {
	w   io.Writer
	n   int64
	sum hash.Hash
}

func newCounter(w io.Writer) *counter { return &counter{w: w, sum: sha256.New()} }

// Write implements [io.Writer].
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.sum.Write(p[:n])
	return n, err
}

func (c *counter) digest() digest.Digest {
	return digest.NewDigestFromEncoded(digest.SHA256, hex.EncodeToString(c.sum.Sum(nil)))
}
