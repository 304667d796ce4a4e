package rest

import (
	"net/http"

	"hutch"
	"hutch/internal/stream"
)

// tokenRoutes are the handlers of the verbs on tokens, and on sharing.
type tokenRoutes struct{ *Handler }

func (h tokenRoutes) list(w http.ResponseWriter, r *http.Request) {
	reply(h.Handler, w, r)(h.tokens.Tokens(r.Context()))
}

func (h tokenRoutes) create(r *http.Request, req hutch.TokenRequest) (hutch.MintedToken, error) {
	return h.tokens.CreateToken(r.Context(), req)
}

func (h tokenRoutes) inspect(w http.ResponseWriter, r *http.Request) {
	reply(h.Handler, w, r)(h.tokens.Token(r.Context(), r.PathValue("token")))
}

func (h tokenRoutes) rotate(w http.ResponseWriter, r *http.Request) {
	reply(h.Handler, w, r)(h.tokens.RotateToken(r.Context(), r.PathValue("token")))
}

func (h tokenRoutes) revoke(w http.ResponseWriter, r *http.Request) {
	reply(h.Handler, w, r)(h.tokens.RevokeToken(r.Context(), r.PathValue("token")))
}

func (h tokenRoutes) grants(w http.ResponseWriter, r *http.Request) {
	reply(h.Handler, w, r)(h.sharing.Grants(r.Context(), r.PathValue("id")))
}

func (h tokenRoutes) share(r *http.Request, req stream.Share) (hutch.Grant, error) {
	return h.sharing.Share(r.Context(), r.PathValue("id"), r.PathValue("token"), req.Access)
}

func (h tokenRoutes) unshare(w http.ResponseWriter, r *http.Request) {
	h.done(w, r, h.sharing.Unshare(r.Context(), r.PathValue("id"), r.PathValue("token")))
}
