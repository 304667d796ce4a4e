package client

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/stream"
)

// Expose implements hutch.Ports.
func (c *Client) Expose(ctx context.Context, sandbox string, req hutch.ExposeRequest) (hutch.Port, error) {
	if err := checkText(req.Name+req.Token, "", nil); err != nil {
		return hutch.Port{}, err
	}
	return call[hutch.Port](ctx, c, at("Expose", sandbox).check(req.Check()), req)
}

// Unexpose implements hutch.Ports.
func (c *Client) Unexpose(ctx context.Context, sandbox string, port int) error {
	_, err := call[struct{}](ctx, c, at("Unexpose", sandbox, strconv.Itoa(port)), nil)
	return err
}

// Ports implements hutch.Ports.
func (c *Client) Ports(ctx context.Context, sandbox string) ([]hutch.Port, error) {
	return call[[]hutch.Port](ctx, c, at("Ports", sandbox), nil)
}

// ValidatePortToken implements hutch.Ports.
func (c *Client) ValidatePortToken(ctx context.Context, sandbox string, port int, token string) (bool, error) {
	answer, err := call[stream.PortValidity](ctx, c, at("ValidatePortToken", sandbox, strconv.Itoa(port)), stream.PortToken{Token: token})
	return answer.Valid, err
}

// LinkPort implements hutch.Ports.
func (c *Client) LinkPort(ctx context.Context, sandbox string, port int, lifetime hutch.Seconds) (hutch.PortLink, error) {
	return call[hutch.PortLink](ctx, c, at("LinkPort", sandbox, strconv.Itoa(port)), stream.PortLifetime{Lifetime: lifetime})
}

// DialPort implements hutch.Ports. If a deadline of the connection passes, the connection ends.
func (c *Client) DialPort(ctx context.Context, sandbox string, port int) (net.Conn, error) {
	conn, err := c.dial(ctx, at("DialPort", sandbox, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return stream.NewPipe(conn), nil
}

// WatchPorts implements hutch.Ports.
func (c *Client) WatchPorts(ctx context.Context, sandbox string, out func(hutch.PortEvent) error) error {
	return follow(ctx, c, at("Ports", sandbox), "port", out)
}

// Expose gives a port of the sandbox a URL.
func (s *Sandbox) Expose(ctx context.Context, req hutch.ExposeRequest) (hutch.Port, error) {
	return s.client.Expose(ctx, s.ID, req)
}

// Unexpose removes the URL of a port.
func (s *Sandbox) Unexpose(ctx context.Context, port int) error {
	return s.client.Unexpose(ctx, s.ID, port)
}

// Ports lists the exposed ports.
func (s *Sandbox) Ports(ctx context.Context) ([]hutch.Port, error) {
	return s.client.Ports(ctx, s.ID)
}

// Link signs a URL that shows an exposed port to every visitor for a while.
func (s *Sandbox) Link(ctx context.Context, port int, lifetime time.Duration) (hutch.PortLink, error) {
	return s.client.LinkPort(ctx, s.ID, port, hutch.InSeconds(lifetime))
}

// Dial connects to a server in the sandbox. Its port need not be exposed.
func (s *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	return s.client.DialPort(ctx, s.ID, port)
}

// Transport returns a transport that sends HTTP requests to a server in the sandbox, whatever host their URLs name:
//
//	web := http.Client{Transport: sb.Transport(8000)}
//	resp, err := web.Get("http://sandbox/")
//
// A reverse proxy (net/http/httputil) can use it, too.
func (s *Sandbox) Transport(port int) *http.Transport {
	return &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx, port) },
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     10 * time.Second, // each connection counts as a use of the sandbox
		DisableCompression:  true,
	}
}

// WebSocket connects to a WebSocket server in the sandbox.
func (s *Sandbox) WebSocket(ctx context.Context, port int, path string, opt *websocket.DialOptions) (*websocket.Conn, *http.Response, error) {
	if opt == nil {
		opt = &websocket.DialOptions{}
	}
	opts := *opt
	opts.HTTPClient = &http.Client{Transport: s.Transport(port)}
	return websocket.Dial(ctx, "ws://localhost:"+strconv.Itoa(port)+path, &opts)
}
