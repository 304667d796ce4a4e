// Package client is the Go SDK of Hutch: a [hutch.Service] over HTTP, and
// [Sandbox] and [Process] handles whose methods are short to write.
//
//	c := client.New("http://127.0.0.1:7700", token)
//	sb, err := c.Open(ctx, hutch.CreateRequest{ID: "build-42"})
//	res, err := sb.Run(ctx, "go test ./...")
//
// Errors of the server arrive as [*hutch.Error] with the kind they had there:
// errors.Is(err, hutch.NotFound) works. A server that cannot be reached is
// hutch.Unavailable; a context that is done returns its cause. Nothing is
// tried twice.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"hutch"
	"hutch/internal/problem"
)

// maxAnswer limits how many bytes of one answer are read: a result with 16 MiB of each of stdout and stderr, every byte
// of it escaped.
const maxAnswer = 256 << 20

// Client is a hutch.Service over HTTP. Its methods are safe for concurrent use.
type Client struct {
	// HTTP makes the calls. It can be replaced before the first call, for example to set a proxy or certificates. It
	// should have no Timeout: commands take long.
	HTTP *http.Client

	url   string
	token string
}

var _ hutch.Service = (*Client)(nil)

// New returns a client that sends token to the server at url. The URL can have a path. The client connects with its
// first call.
func New(url, token string) *Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = t.MaxIdleConns
	t.DisableCompression = true
	t.WriteBufferSize = writeBuffer
	return &Client{
		HTTP: &http.Client{Transport: t, CheckRedirect: refuseRedirect},
		url:  strings.TrimRight(url, "/"), token: token,
	}
}

// refuseRedirect follows no redirects: they would send the token to another server.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Close closes idle connections. Calls under way continue.
func (c *Client) Close() { c.HTTP.CloseIdleConnections() }

// Create implements hutch.Service.
func (c *Client) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	return call[hutch.Sandbox](ctx, c, at("Create").check(req.Check()), req)
}

// Sandbox implements hutch.Service.
func (c *Client) Sandbox(ctx context.Context, id string) (hutch.Sandbox, error) {
	return call[hutch.Sandbox](ctx, c, at("Sandbox", id), nil)
}

// InstanceTypes implements hutch.Service.
func (c *Client) InstanceTypes(ctx context.Context) ([]hutch.InstanceType, error) {
	return call[[]hutch.InstanceType](ctx, c, at("InstanceTypes"), nil)
}

// Update implements hutch.Service.
func (c *Client) Update(ctx context.Context, id string, req hutch.UpdateRequest) (hutch.Sandbox, error) {
	return call[hutch.Sandbox](ctx, c, at("Update", id).check(req.Check()), req)
}

// Sandboxes implements hutch.Service.
func (c *Client) Sandboxes(ctx context.Context, f hutch.Filter) ([]hutch.Sandbox, error) {
	q := url.Values{}
	for name, value := range map[string]string{
		"status": string(f.Status), "owner": f.Owner,
		"createdAfter": timeOrEmpty(f.CreatedAfter), "createdBefore": timeOrEmpty(f.CreatedBefore), "brief": trueOrEmpty(f.Brief),
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, value := range f.Labels {
		q.Add("label", name+"="+value)
	}
	return call[[]hutch.Sandbox](ctx, c, at("Sandboxes").check(f.Check()).with(q), nil)
}

// Destroy implements hutch.Service.
func (c *Client) Destroy(ctx context.Context, id string, force bool) (hutch.Destruction, error) {
	to := at("Destroy", id)
	if force {
		to = to.with(url.Values{"force": {"true"}})
	}
	return call[hutch.Destruction](ctx, c, to, nil)
}

// call makes a call whose answer is one value.
func call[T any](ctx context.Context, c *Client, to endpoint, body any) (T, error) {
	var v T
	resp, err := c.do(ctx, to, body, "application/json")
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return v, c.refusal(ctx, resp).Err()
	}
	if resp.StatusCode == http.StatusNoContent {
		return v, nil
	}
	return v, c.read(ctx, resp, &v)
}

// do sends a request. The caller closes the body of the answer.
func (c *Client) do(ctx context.Context, to endpoint, body any, accept string) (*http.Response, error) {
	if to.err != nil {
		return nil, to.err
	}
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, hutch.Errorf(hutch.Invalid, "the request cannot be written as JSON: %v", err)
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, to.method, c.url+to.path, content)
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "the server's URL %q cannot be used: %v", c.url, err)
	}
	req.Header = c.header(ctx)
	req.Header.Set("Accept", accept)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, c.fault(ctx, err)
	}
	return resp, nil
}

func (c *Client) header(ctx context.Context) http.Header {
	h := http.Header{}
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
	if trace := hutch.TraceOf(ctx); trace != "" {
		h.Set("Traceparent", trace)
	}
	return h
}

// read decodes an answer.
func (c *Client) read(ctx context.Context, resp *http.Response, v any) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return c.fault(ctx, err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return hutch.Errorf(hutch.Unavailable, "what answers at %s does not speak as Hutch does: check the URL", c.url).Because(err)
	}
	return nil
}

// refusal reads the answer to a request that the server refused.
func (c *Client) refusal(ctx context.Context, resp *http.Response) problem.Details {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return problem.New(c.fault(ctx, err))
	}
	if resp.StatusCode == http.StatusBadRequest && strings.HasPrefix(c.url, "http:") && wantsTLS.Match(b) {
		return problem.New(c.speaksTLS())
	}
	return problem.Read(resp.StatusCode, b)
}

// fault returns the error for a connection that could not be made, or broke.
func (c *Client) fault(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if _, ok := errors.AsType[*hutch.Error](err); ok {
		return err
	}
	if err := c.checkToken(); err != nil { // the reason why nothing was sent
		return err
	}
	if err := c.schemeFault(err); err != nil {
		return err
	}
	return hutch.Errorf(hutch.Unavailable, "the Hutch server at %s does not answer, or went away: is it running (`hutch serve`), and is the URL right?", c.url).Because(err)
}

// schemeFault returns the error for a server that speaks HTTP where the URL says HTTPS, or the other way round, or
// whose certificate is not trusted. It is nil for all other faults.
func (c *Client) schemeFault(err error) error {
	rest, secure := strings.CutPrefix(c.url, "https:")
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	cert, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case secure && (noTLS || errors.Is(err, http.ErrSchemeMismatch)):
		return hutch.Errorf(hutch.Unavailable, "the server at %s speaks HTTP: give the URL http:%s", c.url, rest).Because(err)
	case !secure && strings.Contains(err.Error(), `malformed HTTP response "\x15\x03`): // an alert of TLS
		return c.speaksTLS().Because(err)
	case untrusted:
		return hutch.Errorf(hutch.Unavailable, "the certificate of the Hutch server at %s is not trusted (%v): check the URL; for a certificate of your own, set SSL_CERT_FILE to the file of its authority", c.url, cert.Err).Because(err)
	}
	return nil
}

func (c *Client) speaksTLS() *hutch.Error {
	return hutch.Errorf(hutch.Unavailable, "the server at %s speaks HTTPS: give the URL https:%s", c.url, strings.TrimPrefix(c.url, "http:"))
}

// wantsTLS matches the answers of HTTPS servers (Go, nginx, Apache) to plain HTTP.
var wantsTLS = regexp.MustCompile(`HTTP request (was sent )?to (an )?HTTPS|plain HTTP to an SSL`)

// checkToken refuses a token that no header can hold. The error does not have the token.
func (c *Client) checkToken() error {
	for _, b := range []byte(c.token) {
		if b < ' ' || b == 0x7f {
			return hutch.Errorf(hutch.Invalid, "the token has the character %q, which cannot be sent in a header: give the token as `hutch token create` printed it, without a line break after it", b)
		}
	}
	return nil
}

// checkText refuses text that JSON would silently change.
func checkText(command, dir string, env map[string]string) error {
	texts := []string{command, dir}
	for k, v := range env {
		texts = append(texts, k, v)
	}
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return hutch.Errorf(hutch.Invalid, "%.80q is not UTF-8: send binary data on stdin", s)
		}
	}
	return nil
}
