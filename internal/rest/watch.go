package rest

import (
	"context"
	"net/http"
	"strings"

	"hutch"
	"hutch/internal/stream"
)

// WatchPath is the path for watching a terminal by a link. It needs no token, because the link itself gives access.
const WatchPath = "/v1/watch"

// watchSubprotocol is the prefix of a subprotocol that contains the secret of a link. The secret is sent this way
// because a page cannot set headers when it opens a WebSocket, and because URLs end up in logs.
const watchSubprotocol = "hutch.watch."

// watchWindow is how many bytes can be on their way to a viewer.
const watchWindow = 128 << 10

// watchRoutes are the routes of links to terminals.
type watchRoutes struct{ *Handler }

func (h watchRoutes) create(r *http.Request, req stream.PortLifetime) (hutch.SharedTerminal, error) {
	return h.links.Create(r.Context(), r.PathValue("id"), r.PathValue("process"), req.Lifetime)
}

func (h watchRoutes) list(w http.ResponseWriter, r *http.Request) {
	list, err := h.links.List(r.Context(), r.PathValue("id"), r.PathValue("process"))
	reply(h.Handler, w, r)(orEmpty(list), err)
}

func (h watchRoutes) revoke(w http.ResponseWriter, r *http.Request) {
	h.done(w, r, h.links.Revoke(r.Context(), r.PathValue("id"), r.PathValue("process"), r.PathValue("link")))
}

// watch shows a terminal to anyone with a link to it. It cannot change the terminal's input or size.
func (h watchRoutes) watch(w http.ResponseWriter, r *http.Request) {
	secret := takeWatchSecret(r)
	q, err := query(r, "cursor")
	if err == nil && !wantsSocket(r) {
		err = hutch.Errorf(hutch.Invalid, "GET of watch opens a WebSocket: open the link in a browser")
	}
	req := hutch.LogsRequest{Follow: true}
	if err == nil {
		req.Cursor, err = cursorOf(r, q)
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	ctx, link, done, err := h.links.Watch(r.Context(), secret)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	defer done()
	req.SandboxID, req.ProcessID = link.SandboxID, link.ProcessID
	h.look(w, r.WithContext(ctx), req, func(ctx context.Context, s *socket, cancel context.CancelCauseFunc) (any, error) {
		return newViewer(s, h.svc, req, pace{window: watchWindow, catchUp: true}).watch(ctx, cancel)
	})
}

// takeWatchSecret returns the secret of a link, and removes it from the request, so that no later code puts it into an
// answer.
func takeWatchSecret(r *http.Request) (secret string) {
	const header = "Sec-Websocket-Protocol"
	for i, line := range r.Header[header] {
		var rest []string
		for name := range strings.SplitSeq(line, ",") {
			if value, ok := strings.CutPrefix(strings.TrimSpace(name), watchSubprotocol); ok {
				secret = value
				continue
			}
			rest = append(rest, name)
		}
		r.Header[header][i] = strings.Join(rest, ",")
	}
	return secret
}
