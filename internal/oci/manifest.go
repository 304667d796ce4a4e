package oci

import (
	"context"
	"encoding/json"
	"maps"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"hutch"
	"hutch/internal/jsoncount"
)

// document is a manifest of one image, or an index of manifests.
type document struct {
	SchemaVersion int             `json:"schemaVersion"`
	Manifests     []v1.Descriptor `json:"manifests"`
	Config        *v1.Descriptor  `json:"config"`
	Layers        []v1.Descriptor `json:"layers"`
}

// mostValues is how many values a manifest or a configuration can have. In memory a list of empty objects is fifty
// times as long as its text. An index of a thousand images has ten thousand values.
const mostValues = 50_000

// decode reads a document from a registry or an archive.
func decode(body []byte, v any) error {
	if jsoncount.Values(body) >= mostValues {
		return hutch.Errorf(hutch.Exhausted, "the manifest or the configuration of the image has more than %d values: have it built with fewer", mostValues).With("limit", "image values")
	}
	return json.Unmarshal(body, v)
}

// parseDocument refuses documents that different readers could understand differently.
func parseDocument(body []byte) (document, error) {
	var d document
	err := decode(body, &d)
	switch {
	case hutch.KindOf(err) == hutch.Exhausted:
		return d, err
	case err != nil:
		return d, hutch.Errorf(hutch.Invalid, "the manifest of the image is not a JSON document, or has a bad digest: have the image pushed again").Because(err)
	case d.SchemaVersion != 2:
		return d, hutch.Errorf(hutch.Unsupported, "the manifest of the image has schema version %d: push the image again with a newer tool, which writes version 2", d.SchemaVersion)
	case (d.Config != nil) == (d.Manifests != nil):
		return d, hutch.Errorf(hutch.Invalid, "the manifest of the image is neither one of an image nor an index: have it pushed again")
	}
	return d, nil
}

// platform is the platform that an image must run on.
type platform struct{ os, architecture, variant string }

// parsePlatform reads linux/arm64 or linux/arm/v7; empty is this machine's.
func parsePlatform(text string) (platform, error) {
	if text == "" {
		return platform{"linux", runtime.GOARCH, ""}, nil
	}
	parts := strings.Split(text, "/")
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return platform{}, hutch.Errorf(hutch.Invalid, "%.100q is not a platform: write linux/amd64, linux/arm64 or linux/arm/v7", text).Naming(hutch.AboutField, "platform")
	}
	return platform{parts[0], parts[1], strings.Join(parts[2:], "")}, nil
}

func (p platform) String() string {
	return strings.TrimSuffix(p.os+"/"+p.architecture+"/"+p.variant, "/")
}

// matches reports whether p can run an image for q. If one of them names no variant, any variant matches.
func (p platform) matches(q platform) bool {
	return p.os == q.os && p.architecture == q.architecture && (p.variant == "" || q.variant == "" || p.variant == q.variant)
}

func (p platform) refuses(has string) error {
	return hutch.Errorf(hutch.Unsupported, "the image is for %s, and this server runs %s: pull one for that, or have it built for it", has, p)
}

// source returns manifests and indexes, by digest; the first call can be by tag.
type source func(ctx context.Context, identifier string) ([]byte, error)

// resolve follows indexes to the manifest for a platform.
func resolve(ctx context.Context, get source, identifier string, want platform, depth int) ([]byte, document, error) {
	for ; depth >= 0; depth-- {
		body, err := get(ctx, identifier)
		if err != nil {
			return nil, document{}, err
		}
		if isDigest(identifier) && digestOf(body) != identifier {
			return nil, document{}, hutch.Errorf(hutch.Invalid, "the manifest is not the one of %s: the registry lies, or something on the way changes what it sends", identifier)
		}
		d, err := parseDocument(body)
		if err != nil || d.Config != nil {
			return body, d, err
		}
		next, err := choose(d.Manifests, want)
		if err != nil {
			return nil, document{}, err
		}
		identifier = next
	}
	return nil, document{}, hutch.Errorf(hutch.Exhausted, "the image is behind too many indexes within each other: an image like that is not taken").With("limit", "index depth")
}

// choose returns the digest of the entry of an index that a platform needs.
func choose(entries []v1.Descriptor, want platform) (string, error) {
	has := map[string]bool{}
	var unknown []string // entries without a platform
	for _, e := range entries {
		if !isDigest(e.Digest.String()) {
			continue
		}
		if e.Platform == nil {
			unknown = append(unknown, e.Digest.String())
			continue
		}
		p := platform{e.Platform.OS, e.Platform.Architecture, e.Platform.Variant}
		if want.matches(p) {
			return e.Digest.String(), nil
		}
		if p.os != "unknown" { // unknown means an attestation
			has[p.String()] = true
		}
	}
	if len(unknown) == 1 {
		return unknown[0], nil
	}
	if len(has) == 0 {
		return "", hutch.Errorf(hutch.Invalid, "the index of the image names no image for %s: have it pushed again", want)
	}
	return "", want.refuses(strings.Join(slices.Sorted(maps.Keys(has)), ", "))
}

// describe makes a record of a manifest and its configuration, after it checked both.
func (s *Store) describe(manifest []byte, d document, config []byte, want platform) (record, error) {
	var c struct {
		v1.ConfigFile
		Config runConfig `json:"config"`
	}
	if err := decode(config, &c); hutch.KindOf(err) == hutch.Exhausted {
		return record{}, err
	} else if err != nil {
		return record{}, hutch.Errorf(hutch.Invalid, "the configuration of the image cannot be read: have the image pushed again").Because(err)
	}
	if is := (platform{c.OS, c.Architecture, c.Variant}); !want.matches(is) {
		return record{}, want.refuses(is.String())
	}
	if len(c.RootFS.DiffIDs) != len(d.Layers) {
		return record{}, layerCount(len(c.RootFS.DiffIDs), len(d.Layers))
	}
	if kept, err := json.Marshal(c.Config); err != nil || len(kept) > s.o.Limits.Config {
		return record{}, hutch.Errorf(hutch.Exhausted, "the environment, labels and commands of the image have %d bytes: at most %d are allowed; have it built with fewer", len(kept), s.o.Limits.Config).With("limit", "configuration bytes")
	}
	r := record{ConfigDigest: d.Config.Digest.String()}
	r.Image = Image{Digest: digestOf(manifest), Created: c.Created.UTC(), Architecture: c.Architecture, OS: c.OS, Config: c.Config.public()}
	r.Size = int64(len(manifest)) + int64(len(config))
	for _, l := range d.Layers {
		r.Layers = append(r.Layers, Layer{l.Digest.String(), l.Size})
		r.Size += l.Size
	}
	return r, nil
}

// check refuses a manifest of an image that is too large, before anything of it is fetched.
func (s *Store) check(d document) error {
	l := s.o.Limits
	if len(d.Layers) > l.Layers {
		return hutch.Errorf(hutch.Exhausted, "the image has %d layers: at most %d are allowed; have it built with fewer", len(d.Layers), l.Layers).With("limit", "image layers")
	}
	if d.Config.Size > l.Document {
		return hutch.Errorf(hutch.Exhausted, "the configuration of the image has %d bytes: at most %d are allowed", d.Config.Size, l.Document).With("limit", "configuration bytes")
	}
	var sum int64
	for _, b := range append([]v1.Descriptor{*d.Config}, d.Layers...) {
		if !isDigest(b.Digest.String()) || b.Size < 0 {
			return hutch.Errorf(hutch.Unsupported, "the image has a layer with the digest %.100s and %d bytes: only sha256 is known here; have it pushed again", b.Digest, b.Size)
		}
		if sum += b.Size; b.Size > l.Blob || sum > l.Bytes {
			return hutch.Errorf(hutch.Exhausted, "the image has a layer of %d MiB, and %d MiB are more than is allowed for a layer (%d MiB) or an image (%d MiB)", b.Size>>20, sum>>20, l.Blob>>20, l.Bytes>>20).With("limit", "image bytes")
		}
		if kind := string(b.MediaType); kind != "" && !strings.Contains(kind, "image") {
			return hutch.Errorf(hutch.Unsupported, "%.100q is not an image that can run: it holds %.100q", b.Digest, kind)
		}
	}
	return nil
}

// runConfig is the part of a configuration that [Config] shows, in its JSON form.
type runConfig struct {
	Env, Entrypoint, Cmd, Shell []string
	WorkingDir, User            string
	StopSignal                  string
	Labels                      map[string]string
	ExposedPorts, Volumes       map[string]struct{}
	Healthcheck                 *Healthcheck
}

func (c runConfig) public() Config {
	return Config{Env: c.Env, WorkingDir: c.WorkingDir, User: c.User, Entrypoint: c.Entrypoint, Cmd: c.Cmd, Shell: c.Shell, Labels: c.Labels,
		ExposedPorts: slices.Sorted(maps.Keys(c.ExposedPorts)), Volumes: slices.Sorted(maps.Keys(c.Volumes)), StopSignal: c.StopSignal, Healthcheck: c.Healthcheck}
}

// allow returns an error unless every list allows the registry of ref; an empty list allows all registries.
func allow(ref Reference, lists ...[]string) error {
	for _, list := range lists {
		fits := func(pattern string) bool {
			end, wild := strings.CutPrefix(pattern, "*")
			return pattern == ref.Registry() || wild && strings.HasPrefix(end, ".") && strings.HasSuffix(ref.Registry(), end)
		}
		if len(list) > 0 && !slices.ContainsFunc(list, fits) {
			return hutch.Errorf(hutch.Denied, "the registry %s is not allowed here: use one of %s, or ask the server's administrator", ref.Registry(), strings.Join(list, ", "))
		}
	}
	return nil
}

// needsRegistry refuses references that no registry can have.
func needsRegistry(ref Reference) error {
	if !ref.IsLocal() {
		return nil
	}
	kind := hutch.NotFound
	if ref.IsHost() {
		kind = hutch.Invalid
	}
	return hutch.Errorf(kind, "%s is in no registry: load, build or tag it first, or name an image of a registry, such as python:3.12-slim", ref)
}
