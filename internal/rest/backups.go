package rest

import (
	"net/http"

	"hutch"
)

func (h *Handler) backUp(r *http.Request, req hutch.BackupRequest) (hutch.Backup, error) {
	return h.backups.Backup(r.Context(), r.PathValue("id"), req)
}

func (h *Handler) listBackups(w http.ResponseWriter, r *http.Request) {
	list, err := h.backups.Backups(r.Context())
	reply(h, w, r)(orEmpty(list), err)
}

func (h *Handler) deleteBackup(w http.ResponseWriter, r *http.Request) {
	h.done(w, r, h.backups.DeleteBackup(r.Context(), r.PathValue("backup")))
}

func (h *Handler) restoreBackup(w http.ResponseWriter, r *http.Request) {
	var req hutch.RestoreBackupRequest
	err := h.body(w, r, &req)
	if err == nil {
		err = h.backups.RestoreBackup(r.Context(), r.PathValue("backup"), req)
	}
	h.done(w, r, err)
}
