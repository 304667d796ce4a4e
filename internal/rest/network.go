package rest

import (
	"net/http"
	"strconv"

	"hutch"
)

func (h *Handler) network(w http.ResponseWriter, r *http.Request) {
	reply(h, w, r)(h.svc.Network(r.Context(), r.PathValue("id")))
}

func (h *Handler) setNetwork(r *http.Request, n hutch.Network) (hutch.NetworkState, error) {
	return h.svc.SetNetwork(r.Context(), r.PathValue("id"), n)
}

func (h *Handler) netConnections(w http.ResponseWriter, r *http.Request) {
	p := paramsOf(r, "after", "verdict", "limit", "wait")
	q := hutch.ConnectionQuery{After: p.number("after"), Limit: int(p.number("limit")), Verdict: hutch.Verdict(p.Get("verdict")), Wait: p.seconds("wait")}
	if p.err != nil {
		h.fail(w, r, p.err)
		return
	}
	log, err := h.svc.Connections(r.Context(), r.PathValue("id"), q)
	log.Connections = orEmpty(log.Connections)
	reply(h, w, r)(log, err)
}

func (p *params) seconds(name string) hutch.Seconds {
	v := p.Get(name)
	if v == "" || p.err != nil {
		return 0
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil {
		p.err = hutch.Errorf(hutch.Invalid, "the parameter %s is %.80q: give seconds", name, v).Naming(hutch.AboutField, name)
	}
	return hutch.Seconds(n)
}
