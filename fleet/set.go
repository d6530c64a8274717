package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// ArtifactType is the type of a set in registries.
const ArtifactType = "application/vnd.aiter.kernels.v1"

// The annotations of a set. Those of a layer begin with the same prefix.
const (
	annotation         = "io.github.aiter-go."
	annotationTarget   = annotation + "target"   // of a layer: "gfx942"
	annotationModule   = annotation + "module"   // of an artifact's layer; records have none
	annotationPart     = annotation + "part"     // of an artifact's layer: "op dtype=float16", "" for the whole module
	annotationArtifact = annotation + "artifact" // of an artifact's layer: its ID
	annotationSize     = annotation + "size"     // of a layer: bytes of the tar file
	annotationSubject  = annotation + "subject"  // of a signature in the index of a folder: digest of the signed manifest
)

const (
	maxLayers = 20_000
	maxLayer  = 8 << 30 // bytes of a layer, packed or not
)

// Layer is a layer of a set: the records of a target, or an artifact.
type Layer struct {
	Target   string `json:"target"`
	Module   string `json:"module"` // "" for records
	Part     string `json:"part"`
	Artifact string `json:"artifact"` // ID
	Digest   string `json:"digest"`   // of the packed layer
	Packed   int64  `json:"packed"`   // bytes
	Size     int64  `json:"size"`     // bytes of the tar file

	descriptor ocispec.Descriptor
}

// isFor reports whether a node needs the layer for a module and a target. "" is every module or target.
func (l Layer) isFor(module, target string) bool {
	return (target == "" || l.Target == target) && (module == "" || l.Module == "" || l.Module == module)
}

// manifest is a checked manifest of a set.
type manifest struct {
	digest string // "sha256:..."
	layers []Layer
	raw    []byte
}

// packed returns the size of layers.
func packed(layers []Layer) (bytes int64) {
	for _, l := range layers {
		bytes += l.Packed
	}
	return bytes
}

// layersFor returns the layers for a module and a target, nil if there is no artifact among them.
func (m *manifest) layersFor(module, target string) []Layer {
	var list []Layer
	artifacts := false
	for _, l := range m.layers {
		if l.isFor(module, target) {
			list = append(list, l)
			artifacts = artifacts || l.Module != ""
		}
	}
	if !artifacts {
		return nil
	}
	return list
}

// parseManifest reads a manifest and checks its form. The error is a *DamageError.
func parseManifest(raw []byte) (*manifest, error) {
	var m ocispec.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, damaged("the manifest is not JSON: %w", err)
	}
	switch {
	case m.MediaType != ocispec.MediaTypeImageManifest:
		return nil, damaged("the manifest is of type %q, expected %q", m.MediaType, ocispec.MediaTypeImageManifest)
	case m.ArtifactType != ArtifactType:
		return nil, damaged("the reference leads to an artifact of type %q, expected a set of kernels (%s), as aiterctl push makes it",
			m.ArtifactType, ArtifactType)
	case len(m.Layers) > maxLayers:
		return nil, damaged("the manifest has %d layers, expected at most %d", len(m.Layers), maxLayers)
	}
	set := &manifest{digest: digest.FromBytes(raw).String(), raw: raw}
	for i, d := range m.Layers {
		l, err := parseLayer(d)
		if err != nil {
			return nil, damaged("layer %d: %w", i, err)
		}
		set.layers = append(set.layers, l)
	}
	return set, nil
}

func parseLayer(d ocispec.Descriptor) (Layer, error) {
	size, err := strconv.ParseInt(d.Annotations[annotationSize], 10, 64)
	l := Layer{
		Target: d.Annotations[annotationTarget], Module: d.Annotations[annotationModule], Part: d.Annotations[annotationPart],
		Artifact: d.Annotations[annotationArtifact], Digest: d.Digest.String(), Packed: d.Size, Size: size, descriptor: d,
	}
	switch {
	case d.MediaType != ocispec.MediaTypeImageLayerGzip:
		return l, fmt.Errorf("it is of type %q, expected %q", d.MediaType, ocispec.MediaTypeImageLayerGzip)
	case d.Digest.Validate() != nil || d.Digest.Algorithm() != digest.SHA256:
		return l, fmt.Errorf("its digest %q is not a SHA-256", d.Digest)
	case err != nil || size < 0 || size > maxLayer || d.Size < 0 || d.Size > maxLayer:
		return l, fmt.Errorf("its size is %d bytes packed and %q unpacked, expected 0 to %d",
			d.Size, d.Annotations[annotationSize], int64(maxLayer))
	case l.Target == "":
		return l, errors.New("it has no target")
	case (l.Module == "") != (l.Artifact == ""):
		return l, errors.New("it has a module without an artifact or an artifact without a module, expected both or neither")
	}
	l.descriptor.Annotations, l.descriptor.Data, l.descriptor.URLs = nil, nil, nil // blobs come from the repository alone
	return l, nil
}

// newManifest returns the manifest and the configuration of packed layers. The configuration is that of an image, so that container
// runtimes mount sets.
func newManifest(layers []packedLayer) (raw, config []byte, err error) {
	image := ocispec.Image{Platform: platform(), RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{}}}
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: ArtifactType,
		Layers: []ocispec.Descriptor{},
	}
	for _, l := range layers {
		image.RootFS.DiffIDs = append(image.RootFS.DiffIDs, l.diffID)
		m.Layers = append(m.Layers, l.descriptor)
	}
	if config, err = json.Marshal(image); err != nil {
		return nil, nil, err
	}
	m.Config = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: digest.FromBytes(config), Size: int64(len(config))}
	raw, err = json.Marshal(m)
	return bytes.Clone(raw), config, err
}

// targetsOf returns the targets of layers, sorted.
func targetsOf(layers []Layer) []string {
	var list []string
	for _, l := range layers {
		if !slices.Contains(list, l.Target) {
			list = append(list, l.Target)
		}
	}
	slices.Sort(list)
	return list
}
