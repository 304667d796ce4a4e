package rest

import (
	"net/http"

	"hutch"
)

// sshRoutes are the routes of the keys of SSH clients.
type sshRoutes struct{ *Handler }

func (h sshRoutes) server(w http.ResponseWriter, r *http.Request) {
	reply(h.Handler, w, r)(h.ssh.SSHServer(r.Context()))
}

func (h sshRoutes) list(w http.ResponseWriter, r *http.Request) {
	list, err := h.ssh.SSHKeys(r.Context())
	reply(h.Handler, w, r)(orEmpty(list), err)
}

func (h sshRoutes) add(r *http.Request, req hutch.SSHKeyRequest) (hutch.SSHKey, error) {
	return h.ssh.AddSSHKey(r.Context(), req)
}

func (h sshRoutes) delete(w http.ResponseWriter, r *http.Request) {
	h.done(w, r, h.ssh.DeleteSSHKey(r.Context(), r.PathValue("key")))
}

func (h sshRoutes) sign(r *http.Request, req hutch.SSHSignRequest) (hutch.SSHCertificate, error) {
	return h.ssh.SignSSHKey(r.Context(), req)
}
