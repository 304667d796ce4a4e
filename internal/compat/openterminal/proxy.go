package openterminal

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat"
)

// The proxy passes requests on to a server in the user's sandbox: Open WebUI shows it beside the chat. Connections are
// made by the verb DialPort, with the rights of the request's token. Package preview passes on no token and no cookie,
// and makes a browser give the page a unique origin: it comes from the host of this server, or of Open WebUI.

// visit is a server with requests under way.
type visit struct {
	hutch.Preview
	requests int
}

// visits are the servers with requests in progress, by label. Package preview finds and dials them here.
type visits struct {
	svc     hutch.Service
	mu      sync.Mutex
	byLabel map[string]*visit
}

// Preview implements preview.Sandboxes.
func (v *visits) Preview(label string) (hutch.Preview, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	found, ok := v.byLabel[label]
	if !ok {
		return hutch.Preview{}, hutch.ErrNoPreview
	}
	return found.Preview, nil
}

// DialPort implements preview.Sandboxes.
func (v *visits) DialPort(ctx context.Context, sandbox string, port int) (net.Conn, error) {
	return v.svc.DialPort(ctx, sandbox, port)
}

// begin adds a request, until end is called.
func (v *visits) begin(label string, p hutch.Preview) (end func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byLabel == nil {
		v.byLabel = map[string]*visit{}
	}
	if v.byLabel[label] == nil {
		v.byLabel[label] = &visit{Preview: p}
	}
	v.byLabel[label].requests++
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if at := v.byLabel[label]; at.requests > 1 {
			at.requests--
		} else {
			delete(v.byLabel, label)
		}
	}
}

// proxy returns the handler of the proxy. Parameters are the program's.
func (h *Handler) proxy() http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r, done := h.calls.Begin(r)
		defer done()
		if _, err := h.enter(w, r, (*call).visit); err != nil {
			h.fail(w, r, err)
		}
	}
}

// dialScopes are the scopes of DialPort. They are checked for each request, because a connection serves several.
var dialScopes = []hutch.Scope{hutch.ScopePorts, hutch.ScopeExec}

// visit passes the request on.
func (c *call) visit() (any, error) {
	if who := caller.From(c.ctx).Principal; who != nil && !who.Has(dialScopes...) {
		return nil, who.Lack("DialPort", dialScopes)
	}
	given := c.r.PathValue("port")
	port, err := strconv.Atoi(given)
	if err != nil || hutch.CheckPort(port) != nil {
		return nil, hutch.Errorf(hutch.Invalid, "Port must be between 1 and 65535")
	}
	// As with the original, the server gets its own name as the Host: many servers refuse other names.
	host := "localhost:" + strconv.Itoa(port)
	p := hutch.Preview{
		Port:  hutch.Port{SandboxID: c.sandbox, Port: port, URL: "http://" + host, Access: hutch.PublicPort, Protocol: hutch.HTTPPort},
		Owner: compat.Owner(c.ctx), Host: host, Life: context.Background(),
	}
	label := strconv.Itoa(port) + "-" + hashed(p.Owner+" "+c.sandbox)
	defer c.visits.begin(label, p)()
	c.r.Header.Del("Authorization")
	c.previews.Show(c.w, c.r, label, Prefix+"/proxy/"+given)
	return nil, nil
}
