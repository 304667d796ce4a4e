// Package registry fetches manifests and blobs from container registries, and checks every connection.
//
// A registry is a stranger that decides where the server connects next: by names, by redirects, and by the address of
// its token server. So every connection is checked when it is made, after the name was resolved: it never leads to
// link-local or metadata addresses, and to private and loopback ones only if the administrator configured exactly this
// host and port. Bodies have limits, and a body that brings no data for a while fails.
//
// Authentication is the library's; credentials are the caller's, and are sent only to their own host.
package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"hutch"
)

// Settings say how one registry is reached.
type Settings struct {
	// Mirrors are tried first, in this order, when images are pulled: http://HOST:PORT or https://HOST/PREFIX. Their
	// addresses can be private, because the administrator configured them.
	Mirrors []string `json:"mirrors,omitempty"`
	// Private allows the registry itself, and no server that it redirects to, to have a private or loopback address.
	Private bool `json:"private,omitempty"`
	// Insecure makes the store use HTTP without TLS for the registry.
	Insecure bool `json:"insecure,omitempty"`
}

// Repository is one repository of a registry, with its mirrors. It is used for one pull or push, by any number of
// goroutines; Close ends its connections.
type Repository struct {
	endpoints   []*endpoint // mirrors before the registry
	idleTimeout time.Duration
	base        *http.Transport
}

// Options are the settings of a repository.
type Options struct {
	Settings
	Credentials Credentials
	IdleTimeout time.Duration // how long a server can send nothing
	Push        bool          // requests the right to write, and leaves out mirrors
	// Proxy makes the connections to all registries except mirrors and private ones; nil for none. Its address can be
	// private.
	Proxy *url.URL
}

// Open prepares access to a repository, such as library/python of docker.io. It makes no connection.
func Open(registry, repository string, o Options) (*Repository, error) {
	r := &Repository{idleTimeout: o.IdleTimeout}
	if !o.Push {
		for _, m := range o.Mirrors {
			e, err := mirror(m, repository)
			if err != nil {
				return nil, err
			}
			r.endpoints = append(r.endpoints, e)
		}
	}
	origin, err := newEndpoint(registry, repository, o.Settings)
	if err != nil {
		return nil, err
	}
	r.endpoints = append(r.endpoints, origin)
	r.base = r.transport(o.Proxy)
	for _, e := range r.endpoints {
		e.auth, e.push = o.Credentials.of(e.registry.RegistryStr()), o.Push
		e.base = secured{r.base, e.insecure}
	}
	return r, nil
}

// Close ends idle connections.
func (r *Repository) Close() { r.base.CloseIdleConnections() }

// Manifest returns a manifest or an index, by tag or digest, with a limit on its bytes.
func (r *Repository) Manifest(ctx context.Context, identifier string, most int64) ([]byte, error) {
	var body []byte
	err := r.each(ctx, func(e *endpoint) error {
		answer, err := e.get(ctx, r.idleTimeout, "manifests", identifier, manifests)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err = io.ReadAll(io.LimitReader(answer.Body, most+1))
		if err == nil && int64(len(body)) > most {
			err = hutch.Errorf(hutch.Exhausted, "the manifest of the image has more than %d bytes: an image like that is not taken", most).With("limit", "manifest bytes")
		}
		return err
	})
	return body, err
}

var manifests = http.Header{"Accept": {strings.Join([]string{
	string(types.OCIImageIndex), string(types.OCIManifestSchema1), string(types.DockerManifestList), string(types.DockerManifestSchema2)}, ",")}}

// Blob opens a blob at an offset, or at its beginning if the server does not support offsets; start is where the body
// begins. The caller checks the digest and the length.
func (r *Repository) Blob(ctx context.Context, digest string, offset int64) (body io.ReadCloser, start int64, err error) {
	header := http.Header{"Accept-Encoding": {"identity"}}
	if offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	err = r.each(ctx, func(e *endpoint) error {
		answer, err := e.get(ctx, r.idleTimeout, "blobs", digest, header)
		if refused, ok := errors.AsType[*transport.Error](err); ok && refused.StatusCode == http.StatusRequestedRangeNotSatisfiable {
			header.Del("Range")
			answer, err = e.get(ctx, r.idleTimeout, "blobs", digest, header)
		}
		if err != nil {
			return err
		}
		body, start = answer.Body, 0
		if answer.StatusCode == http.StatusPartialContent {
			if start, err = rangeStart(answer.Header.Get("Content-Range")); err != nil || start > offset {
				answer.Body.Close()
				return hutch.Errorf(hutch.Unavailable, "%s sent another part of the layer than it was asked for: try again", e.registry)
			}
		}
		return nil
	})
	return body, start, err
}

func rangeStart(text string) (start int64, err error) {
	_, err = fmt.Sscanf(text, "bytes %d-", &start)
	return start, err
}

// each tries one endpoint after the other until one succeeds. Otherwise it returns the error of the last endpoint,
// which is the registry itself.
func (r *Repository) each(ctx context.Context, do func(*endpoint) error) error {
	var err error
	for _, e := range r.endpoints {
		if err = e.connect(ctx, r.idleTimeout); err == nil {
			err = do(e)
		}
		if err == nil || ctx.Err() != nil {
			break
		}
		err = e.explain(err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Upload returns what go-containerregistry needs to push to the repository.
func (r *Repository) Upload(ctx context.Context, identifier string) (name.Reference, http.RoundTripper, error) {
	e := r.endpoints[len(r.endpoints)-1]
	if err := e.connect(ctx, r.idleTimeout); err != nil {
		return nil, nil, e.explain(err)
	}
	repo := e.registry.Repo(e.repository)
	if strings.Contains(identifier, ":") {
		return repo.Digest(identifier), e.rt, nil
	}
	return repo.Tag(identifier), e.rt, nil
}

// Explain returns the error to show for an error of an upload.
func (r *Repository) Explain(err error) error {
	return r.endpoints[len(r.endpoints)-1].explain(err)
}

// explain describes an error of a registry, and the next step.
func (e *endpoint) explain(err error) error {
	if _, ok := errors.AsType[*hutch.Error](err); ok {
		return err
	}
	answer, ok := errors.AsType[*transport.Error](err)
	if !ok {
		return hutch.Errorf(hutch.Unavailable, "the registry %s cannot be reached: check its name, and the network of the server, and try again", e.registry).Because(redact(err))
	}
	image := e.registry.RegistryStr() + "/" + e.repository
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return hutch.Errorf(hutch.Denied, "the registry does not give %s without the right credentials, or does not have it: check the name, and log in to %s", image, e.registry).Because(redact(err))
	case http.StatusNotFound:
		return hutch.Errorf(hutch.NotFound, "the registry does not have this of %s: check the name, the tag and the digest", image).Because(redact(err))
	case http.StatusTooManyRequests:
		return hutch.Errorf(hutch.Unavailable, "the registry %s has had too many requests from here: wait, log in to it, or set a mirror", e.registry).Because(redact(err))
	}
	return hutch.Errorf(hutch.Unavailable, "the registry %s answered with status %d for %s: try again", e.registry, answer.StatusCode, image).Because(redact(err))
}

// redact removes the query from an address in an error: registries put signatures there.
func redact(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		at, _, _ := strings.Cut(u.URL, "?")
		return &url.Error{Op: u.Op, URL: at, Err: u.Err}
	}
	return err
}

// of returns the login for a registry.
func (c Credentials) of(registry string) authn.Authenticator {
	if registry == name.DefaultRegistry {
		registry = dockerHub
	}
	if c == nil {
		return authn.Anonymous
	}
	known, ok := c(registry)
	if !ok {
		return authn.Anonymous
	}
	return authn.FromConfig(authn.AuthConfig{Username: known.Username, Password: known.Password})
}
