package rest

import (
	"net/http"

	"hutch"
)

var errNoSecrets = hutch.Errorf(hutch.Unsupported, "this server keeps no secrets")

func (h *Handler) secrets(w http.ResponseWriter, r *http.Request) {
	if h.vault == nil {
		h.fail(w, r, errNoSecrets)
		return
	}
	list, err := h.vault.Secrets(r.Context())
	reply(h, w, r)(orEmpty(list), err)
}

func (h *Handler) setSecret(w http.ResponseWriter, r *http.Request) {
	var body hutch.SecretRequest
	err := h.body(w, r, &body)
	if err == nil && h.vault == nil {
		err = errNoSecrets
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	reply(h, w, r)(h.vault.SetSecret(r.Context(), r.PathValue("name"), body))
}

func (h *Handler) deleteSecret(w http.ResponseWriter, r *http.Request) {
	err := error(errNoSecrets)
	if h.vault != nil {
		err = h.vault.DeleteSecret(r.Context(), r.PathValue("name"))
	}
	h.done(w, r, err)
}
