package rest

import (
	"context"
	"net/http"

	"hutch"
)

// nodeRoutes are the routes of hutch.Nodes.
type nodeRoutes struct{ *Handler }

func (h nodeRoutes) list(w http.ResponseWriter, r *http.Request) {
	reply(h.Handler, w, r)(h.nodes.Nodes(r.Context()))
}

func (h nodeRoutes) show(w http.ResponseWriter, r *http.Request) {
	reply(h.Handler, w, r)(h.nodes.Node(r.Context(), r.PathValue("node")))
}

func (h nodeRoutes) change(do func(hutch.Nodes, context.Context, string) (hutch.Node, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		reply(h.Handler, w, r)(do(h.nodes, r.Context(), r.PathValue("node")))
	}
}

func (h nodeRoutes) remove(w http.ResponseWriter, r *http.Request) {
	p := paramsOf(r, "force")
	force := p.flag("force")
	if p.err != nil {
		h.fail(w, r, p.err)
		return
	}
	reply(h.Handler, w, r)(h.nodes.RemoveNode(r.Context(), r.PathValue("node"), force))
}
