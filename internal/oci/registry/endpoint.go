package registry

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"hutch"
)

// endpoint is a registry or a mirror of it, and the repository there.
type endpoint struct {
	registry   name.Registry
	repository string
	insecure   bool
	private    bool
	push       bool
	auth       authn.Authenticator
	base       http.RoundTripper

	mu sync.Mutex
	rt http.RoundTripper // after connect
}

func newEndpoint(registry, repository string, s Settings) (*endpoint, error) {
	var options []name.Option
	if s.Insecure {
		options = append(options, name.Insecure)
	}
	r, err := name.NewRegistry(registry, options...)
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "%.100q is not the name of a registry: write HOST or HOST:PORT", registry).Because(err)
	}
	return &endpoint{registry: r, repository: repository, insecure: s.Insecure, private: s.Private}, nil
}

func mirror(base, repository string) (*endpoint, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return nil, hutch.Errorf(hutch.Invalid, "%.100q is not a mirror of a registry: write http://HOST:PORT or https://HOST/PREFIX", base)
	}
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		repository = prefix + "/" + repository
	}
	return newEndpoint(u.Host, repository, Settings{Insecure: u.Scheme == "http", Private: true})
}

// connect authenticates, once.
func (e *endpoint) connect(ctx context.Context, idleTimeout time.Duration) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rt != nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, idleTimeout, e.noDataError())
	defer cancel()
	action := transport.PullScope
	if e.push {
		action = transport.PushScope
	}
	repo := e.registry.Repo(e.repository)
	rt, err := transport.NewWithContext(ctx, e.registry, e.auth, e.base, []string{repo.Scope(action)})
	if err != nil {
		return causeOr(ctx, err)
	}
	e.rt = rt
	return nil
}

func (e *endpoint) noDataError() error {
	return hutch.Errorf(hutch.Unavailable, "the registry %s does not answer: try again later, or set a mirror", e.registry)
}

func causeOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// mostRedirects is how often a registry can redirect one request of the server.
const mostRedirects = 5

// get requests a manifest or a blob. The answer's body fails when it brings no data for idleTimeout.
func (e *endpoint) get(ctx context.Context, idleTimeout time.Duration, kind, identifier string, header http.Header) (*http.Response, error) {
	scheme := "https"
	if e.insecure {
		scheme = "http"
	}
	at := url.URL{Scheme: scheme, Host: e.registry.RegistryStr(), Path: "/v2/" + e.repository + "/" + kind + "/" + identifier}
	ctx, cancel := context.WithCancelCause(ctx)
	alarm := time.AfterFunc(idleTimeout, func() { cancel(e.noDataError()) })
	stop := func() { alarm.Stop(); cancel(nil) }
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		stop()
		return nil, err
	}
	request.Header = header.Clone()
	client := http.Client{Transport: e.rt, CheckRedirect: func(_ *http.Request, via []*http.Request) error {
		if len(via) > mostRedirects {
			return hutch.Errorf(hutch.Unavailable, "the registry %s redirects in circles: try again later, or set a mirror", e.registry)
		}
		return nil
	}}
	answer, err := client.Do(request)
	if err == nil {
		err = closing(answer, transport.CheckError(answer, http.StatusOK, http.StatusPartialContent))
	}
	if err != nil {
		err = causeOr(ctx, err)
		stop()
		return nil, err
	}
	answer.Body = &timedBody{answer.Body, ctx, alarm, idleTimeout, stop}
	return answer, nil
}

func closing(answer *http.Response, err error) error {
	if err != nil {
		answer.Body.Close()
	}
	return err
}

// timedBody fails when no data arrives for a while.
type timedBody struct {
	io.ReadCloser
	ctx         context.Context
	alarm       *time.Timer
	idleTimeout time.Duration
	stop        func()
}

func (b *timedBody) Read(p []byte) (int, error) {
	b.alarm.Reset(b.idleTimeout)
	n, err := b.ReadCloser.Read(p)
	b.alarm.Stop()
	if err != nil && err != io.EOF {
		err = causeOr(b.ctx, err)
	}
	return n, err
}

func (b *timedBody) Close() error {
	b.stop()
	return b.ReadCloser.Close()
}
