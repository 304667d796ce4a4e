package rest

import (
	"net/http"

	"hutch"
)

func (h *Handler) secrets(w http.ResponseWriter, r *http.Request) {
	list, err := h.vault.Secrets(r.Context())
	reply(h, w, r)(orEmpty(list), err)
}

func (h *Handler) setSecret(r *http.Request, req hutch.SecretRequest) (hutch.Secret, error) {
	return h.vault.SetSecret(r.Context(), r.PathValue("name"), req)
}

func (h *Handler) deleteSecret(w http.ResponseWriter, r *http.Request) {
	h.done(w, r, h.vault.DeleteSecret(r.Context(), r.PathValue("name")))
}
