package rest

import (
	"net/http"

	"hutch"
	"hutch/internal/stream"
)

func (h *Handler) listTokens(w http.ResponseWriter, r *http.Request) {
	reply(h, w, r)(h.tokens.Tokens(r.Context()))
}

func (h *Handler) createToken(r *http.Request, req hutch.TokenRequest) (hutch.MintedToken, error) {
	return h.tokens.CreateToken(r.Context(), req)
}

func (h *Handler) token(w http.ResponseWriter, r *http.Request) {
	reply(h, w, r)(h.tokens.Token(r.Context(), r.PathValue("token")))
}

func (h *Handler) rotateToken(w http.ResponseWriter, r *http.Request) {
	reply(h, w, r)(h.tokens.RotateToken(r.Context(), r.PathValue("token")))
}

func (h *Handler) revokeToken(w http.ResponseWriter, r *http.Request) {
	reply(h, w, r)(h.tokens.RevokeToken(r.Context(), r.PathValue("token")))
}

func (h *Handler) grants(w http.ResponseWriter, r *http.Request) {
	reply(h, w, r)(h.sharing.Grants(r.Context(), r.PathValue("id")))
}

func (h *Handler) share(r *http.Request, req stream.Share) (hutch.Grant, error) {
	return h.sharing.Share(r.Context(), r.PathValue("id"), r.PathValue("token"), req.Access)
}

func (h *Handler) unshare(w http.ResponseWriter, r *http.Request) {
	h.done(w, r, h.sharing.Unshare(r.Context(), r.PathValue("id"), r.PathValue("token")))
}
