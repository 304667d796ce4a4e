package oci

import (
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"hutch"
)

// Reference names an image. The zero value is `host`, the programs of the server's machine. Others are
//
//	python:3.12-slim                     a registry's image; without a registry it is docker.io's
//	ghcr.io/x/y@sha256:HEX               the same by digest, with or without a tag
//	localhost/web                        an image of this store only; it is never pulled
//	sha256:HEX                           an image of this store, by its digest
//
// References are comparable. Their text is canonical: docker.io/library/python:3.12-slim.
type Reference struct {
	registry, repository string // both empty for host and for a digest of this store
	tag, digest          string
}

// local is the registry of images that exist in this store only, as Podman writes it.
const local = "localhost"

const dockerHub = "docker.io"

// ParseReference reads a reference. The error is of kind [hutch.Invalid].
func ParseReference(text string) (Reference, error) {
	_, isFile := hutch.ImageFile(text)
	hex, byDigest := strings.CutPrefix(text, "sha256:")
	switch {
	case text == "" || text == "host":
		return Reference{}, nil
	case isFile:
		return Reference{}, hutch.CheckImage(text)
	case byDigest && isHex(hex):
		return Reference{digest: text}, nil
	case byDigest:
		return Reference{}, badReference("%.200q is not a digest: write sha256: and 64 of 0-9 and a-f, as `hutch image ls` shows", text)
	}
	return parseNamed(text)
}

// The library accepts more than registries do.
var (
	hostPattern       = regexp.MustCompile(`^([A-Za-z0-9]+([.-]+[A-Za-z0-9]+)*|\[[0-9a-fA-F:]+\])(:[0-9]{1,5})?$`)
	repositoryPattern = regexp.MustCompile(`^[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*)*$`)
)

func parseNamed(text string) (Reference, error) {
	named, digest, byDigest := strings.Cut(text, "@")
	if byDigest && !isDigest(digest) {
		return Reference{}, badReference("the image reference %.200q has a bad digest: write NAME@sha256: and 64 of 0-9 and a-f", text)
	}
	tag, err := name.NewTag(named)
	if err != nil || !hostPattern.MatchString(tag.RegistryStr()) || !repositoryPattern.MatchString(tag.RepositoryStr()) {
		return Reference{}, badReference("%.200q is not an image reference: write NAME, NAME:TAG or NAME@sha256:…, in lower case, such as python:3.12-slim or ghcr.io/owner/image:1.0", text).Because(err)
	}
	r := Reference{registry: tag.RegistryStr(), repository: tag.RepositoryStr(), tag: tag.TagStr(), digest: digest}
	if r.registry == name.DefaultRegistry {
		r.registry = dockerHub
	}
	if byDigest && !hasTag(named) {
		r.tag = ""
	}
	return r, nil
}

// hasTag reports whether a name without digest ends with a tag, not with the port of its registry.
func hasTag(named string) bool {
	return strings.Contains(named[strings.LastIndex(named, "/")+1:], ":")
}

func badReference(format string, args ...any) *hutch.Error {
	return hutch.Errorf(hutch.Invalid, format, args...).Naming(hutch.AboutField, "image")
}

// String returns the canonical text.
func (r Reference) String() string {
	switch {
	case r.IsHost():
		return "host"
	case r.repository == "":
		return r.digest
	}
	text := r.registry + "/" + r.repository
	if r.tag != "" {
		text += ":" + r.tag
	}
	if r.digest != "" {
		text += "@" + r.digest
	}
	return text
}

// MarshalText returns the canonical text.
func (r Reference) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is [ParseReference].
func (r *Reference) UnmarshalText(text []byte) (err error) {
	*r, err = ParseReference(string(text))
	return err
}

// IsHost reports whether the reference is `host`, which is never in a store.
func (r Reference) IsHost() bool { return r == Reference{} }

// IsLocal reports whether no registry can have the image.
func (r Reference) IsLocal() bool { return r.registry == "" || r.registry == local }

// Registry returns the host of the registry, with its port, such as docker.io or localhost:5000. It is empty when
// IsLocal.
func (r Reference) Registry() string {
	if r.IsLocal() {
		return ""
	}
	return r.registry
}

// Repository returns the name within the registry, such as library/python.
func (r Reference) Repository() string { return r.repository }

// Digest returns the digest in the reference, such as sha256:…; most references have none.
func (r Reference) Digest() string { return r.digest }

// identifier returns the tag or digest for the registry.
func (r Reference) identifier() string {
	if r.digest != "" {
		return r.digest
	}
	return r.tag
}

func isDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && isHex(hex)
}

func isHex(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}
