package rest

import (
	"net/http"

	"hutch"
	"hutch/internal/stream"
)

// tokenRoutes serve the administration of tokens and what is shared with them.
// Who may call is the services' to decide.
func (h *Handler) tokenRoutes() {
	tokens, sharing := h.when(h.tokens != nil), h.when(h.sharing != nil)
	h.route("/v1/tokens", methods{"GET": tokens(h.listTokens), "POST": tokens(posts(h, h.createToken))})
	h.route("/v1/tokens/{token}", methods{"GET": tokens(h.token), "DELETE": tokens(h.revokeToken)})
	h.route("/v1/tokens/{token}/rotate", methods{"POST": tokens(h.rotateToken)})
	h.route("/v1/sandboxes/{id}/grants", methods{"GET": sharing(h.grants)})
	h.route("/v1/sandboxes/{id}/grants/{token}", methods{"PUT": sharing(posts(h, h.share)), "DELETE": sharing(h.unshare)})
}

// when keeps routes of what this server has, and refuses those of what it has
// not.
func (h *Handler) when(has bool) func(http.HandlerFunc) http.HandlerFunc {
	return func(f http.HandlerFunc) http.HandlerFunc {
		if has {
			return f
		}
		return func(w http.ResponseWriter, r *http.Request) {
			h.fail(w, r, hutch.Errorf(hutch.Unsupported, "this server does not have that: one that `hutch serve` runs has"))
		}
	}
}

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
