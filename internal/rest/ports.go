package rest

import (
	"net/http"
	"strconv"

	"hutch"
	"hutch/internal/stream"
)

func (h *Handler) expose(r *http.Request, req hutch.ExposeRequest) (hutch.Port, error) {
	return h.svc.Expose(r.Context(), r.PathValue("id"), req)
}

// ports answers with the exposed ports or, for a client that asks for events, with the servers in the sandbox as they
// appear.
func (h *Handler) ports(w http.ResponseWriter, r *http.Request) {
	if !wantsEvents(r) {
		list, err := h.svc.Ports(r.Context(), r.PathValue("id"))
		reply(h, w, r)(orEmpty(list), err)
		return
	}
	es := h.events(w, r)
	defer es.Close()
	err := h.svc.WatchPorts(r.Context(), r.PathValue("id"), func(e hutch.PortEvent) error { return es.send("", "port", e) })
	if err != nil {
		es.fail(h.describe(r, err))
	}
}

func (h *Handler) unexpose(w http.ResponseWriter, r *http.Request) {
	port, err := portOf(r)
	if err == nil {
		err = h.svc.Unexpose(r.Context(), r.PathValue("id"), port)
	}
	h.done(w, r, err)
}

func portOf(r *http.Request) (int, error) {
	port, err := strconv.Atoi(r.PathValue("port"))
	if err != nil {
		return 0, hutch.Errorf(hutch.Invalid, "there is no port %.40q: use 1 to 65535", r.PathValue("port")).Naming(hutch.AboutField, "port")
	}
	return port, hutch.CheckPort(port)
}

func (h *Handler) validatePort(r *http.Request, body stream.PortToken) (v stream.PortValidity, err error) {
	port, err := portOf(r)
	if err == nil {
		v.Valid, err = h.svc.ValidatePortToken(r.Context(), r.PathValue("id"), port, body.Token)
	}
	return v, err
}

func (h *Handler) linkPort(r *http.Request, body stream.PortLifetime) (link hutch.PortLink, err error) {
	port, err := portOf(r)
	if err == nil {
		link, err = h.svc.LinkPort(r.Context(), r.PathValue("id"), port, body.Lifetime)
	}
	return link, err
}

// connect connects a WebSocket to a server in the sandbox. If that server cannot be reached, the error is reported
// before the WebSocket is opened.
func (h *Handler) connect(w http.ResponseWriter, r *http.Request) {
	port, err := portOf(r)
	if err == nil && !wantsSocket(r) {
		err = hutch.Errorf(hutch.Invalid, "GET of connect opens a WebSocket: connect with a WebSocket client, or use hutch forward")
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	server, err := h.svc.DialPort(r.Context(), r.PathValue("id"), port)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.join(w, r, server)
}
