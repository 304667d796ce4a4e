package router

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"

	"hutch"
)

// destination says where a request is forwarded. It is a value in the request's context, whose key is destination{}.
type destination struct {
	route
	Target
	late *time.Timer // ends a request whose answer does not begin
}

func destinationOf(r *http.Request) destination {
	d, _ := r.Context().Value(destination{}).(destination)
	return d
}

// newProxy returns the proxy that leads requests to servers in sandboxes. A sandbox's id stands for its address.
func (h *Handler) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: rewrite,
		ModifyResponse: func(r *http.Response) error {
			destinationOf(r.Request).late.Stop()
			return nil
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				sandbox, port, err := net.SplitHostPort(address)
				if err != nil {
					return nil, err
				}
				n, err := strconv.Atoi(port)
				if err != nil {
					return nil, err
				}
				return h.opt.Service.DialPort(ctx, sandbox, n)
			},
			// An idle connection would keep its sandbox from sleeping.
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: 64 << 10,
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			message := "Could not connect to the backend sandbox: " + destinationOf(r).name
			if e, ok := errors.AsType[*hutch.Error](err); ok {
				message += ": " + e.Message
			}
			status := http.StatusBadGateway
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(context.Cause(r.Context()), context.DeadlineExceeded) {
				status = http.StatusGatewayTimeout
			}
			fault{status, message}.answer(w)
		},
	}
}

// rewrite addresses a request to its server, and takes out what is meant for the router: no program in a sandbox gets a caller's
// credentials for the cluster.
func rewrite(pr *httputil.ProxyRequest) {
	to := destinationOf(pr.In)
	port := strconv.Itoa(to.port)
	pr.Out.URL.Scheme, pr.Out.URL.Host = "http", net.JoinHostPort(to.Sandbox, port)
	pr.Out.Host = "localhost:" + port
	pr.Out.Header.Del("Authorization")
	for name := range pr.Out.Header {
		if strings.HasPrefix(name, "X-Sandbox-") {
			pr.Out.Header.Del(name)
		}
	}
	if pr.Out.Header.Get("Upgrade") != "" {
		// The Origin has the router's host, and servers would compare it with their own.
		pr.Out.Header.Del("Origin")
	}
	pr.SetXForwarded()
}

// forward leads a request to a server in the sandbox. The time limit of a request applies until its answer begins, so
// streams and WebSockets can last longer.
func (h *Handler) forward(w http.ResponseWriter, r *http.Request, to route, target Target) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	late := time.AfterFunc(to.timeout, func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()
	h.proxy.ServeHTTP(w, r.WithContext(context.WithValue(ctx, destination{}, destination{to, target, late})))
}
