package rest

import (
	"net"
	"net/http"

	"hutch"
	"hutch/internal/stream"
)

// screenRoutes are the handlers of the verbs on screens.
type screenRoutes struct{ *Handler }

func (h screenRoutes) start(r *http.Request, req hutch.ScreenRequest) (hutch.Screen, error) {
	return h.svc.StartScreen(r.Context(), r.PathValue("id"), req)
}

func (h screenRoutes) inspect(w http.ResponseWriter, r *http.Request) {
	reply(h.Handler, w, r)(h.svc.Screen(r.Context(), r.PathValue("id")))
}

func (h screenRoutes) shot(w http.ResponseWriter, r *http.Request) {
	req, err := screenshotRequest(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	shot, err := h.svc.Screenshot(r.Context(), r.PathValue("id"), req)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "image/png")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	h.writer(w, r).Write(shot.PNG) // an error means that the client has disconnected
}

// screenshotRequest reads the parameters of a region: all four or none.
func screenshotRequest(r *http.Request) (req hutch.ScreenshotRequest, err error) {
	names := []string{"x", "y", "width", "height"}
	p := paramsOf(r, names...)
	given := 0
	for _, name := range names {
		if p.Has(name) {
			given++
		}
	}
	if p.err == nil && given != 0 && given != len(names) {
		p.err = hutch.Errorf(hutch.Invalid, "a region has x, y, width and height: give all four, or none for the whole screen").Naming(hutch.AboutField, "region")
	}
	if given != 0 {
		req.Region = &hutch.Region{X: int(p.number("x")), Y: int(p.number("y")), Width: int(p.number("width")), Height: int(p.number("height"))}
	}
	return req, p.err
}

func (h screenRoutes) control(r *http.Request, req hutch.ControlRequest) (hutch.ControlResult, error) {
	return h.svc.ControlScreen(r.Context(), r.PathValue("id"), req)
}

func (h screenRoutes) readClipboard(w http.ResponseWriter, r *http.Request) {
	text, err := h.svc.ReadClipboard(r.Context(), r.PathValue("id"))
	reply(h.Handler, w, r)(hutch.Clipboard{Text: text}, err)
}

func (h screenRoutes) writeClipboard(w http.ResponseWriter, r *http.Request) {
	var body hutch.Clipboard
	err := h.body(w, r, &body)
	if err == nil {
		err = h.svc.WriteClipboard(r.Context(), r.PathValue("id"), body.Text)
	}
	h.done(w, r, err)
}

func (h screenRoutes) open(r *http.Request, body hutch.Address) (hutch.Process, error) {
	return h.svc.OpenURL(r.Context(), r.PathValue("id"), body.URL)
}

// view connects a WebSocket to the screen. If the screen cannot be reached, the error is reported before the WebSocket
// is opened.
func (h screenRoutes) view(w http.ResponseWriter, r *http.Request) {
	p := paramsOf(r, "control")
	control := p.flag("control")
	if p.err == nil && !wantsSocket(r) {
		p.err = hutch.Errorf(hutch.Invalid, "GET of view opens a WebSocket that speaks VNC: connect with a WebSocket client such as noVNC, or get the screenshot")
	}
	if p.err != nil {
		h.fail(w, r, p.err)
		return
	}
	screen, err := h.svc.ViewScreen(r.Context(), r.PathValue("id"), control)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.join(w, r, screen)
}

// join copies data between a WebSocket and a connection, and closes the connection at the end.
func (h *Handler) join(w http.ResponseWriter, r *http.Request, conn net.Conn) {
	defer conn.Close()
	s := h.accept(w, r)
	if s == nil {
		return
	}
	defer s.close()
	ctx, cancel := s.contextWithPing(r)
	defer cancel(nil)
	stream.Join(ctx, stream.NewPipe(s.conn), conn)
}
