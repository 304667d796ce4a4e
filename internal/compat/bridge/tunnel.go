package bridge

import (
	"net/http"
	"net/url"
	"time"

	"hutch"
	"hutch/internal/compat"
)

// tunnel is the record of a tunnel, which is an exposed port.
type tunnel struct {
	ID        string    `json:"id"`
	Port      int       `json:"port"`
	URL       string    `json:"url"`
	Hostname  string    `json:"hostname"`
	CreatedAt time.Time `json:"createdAt"`
	Name      string    `json:"name,omitempty"`
}

func (h *Handler) openTunnel(w http.ResponseWriter, r *http.Request, id string) {
	port, ok := portOf(r.PathValue("port"))
	if !ok {
		h.refuse(w, r, http.StatusBadRequest, codeRequest, "Invalid port")
		return
	}
	var body struct {
		Name string `json:"name"`
	}
	err := compat.ReadJSON(w, r, &body)
	var p hutch.Port
	if err == nil {
		err = compat.OnFirstUse(r.Context(), h.svc, id, func() (err error) {
			p, err = h.svc.Expose(r.Context(), id, hutch.ExposeRequest{Port: port, Name: body.Name})
			return err
		})
	}
	if err != nil {
		h.fail(w, r, err, codeTunnel)
		return
	}
	t := tunnel{ID: p.Label(), Port: p.Port, URL: p.URL, CreatedAt: p.CreatedAt, Name: p.Name}
	if u, err := url.Parse(p.URL); err == nil {
		t.Hostname = u.Hostname()
	}
	h.answer(w, r, t)
}

// closeTunnel is idempotent.
func (h *Handler) closeTunnel(w http.ResponseWriter, r *http.Request, id string) {
	port, ok := portOf(r.PathValue("port"))
	if !ok {
		h.refuse(w, r, http.StatusBadRequest, codeRequest, "Invalid port")
		return
	}
	if err := h.svc.Unexpose(r.Context(), id, port); err != nil && !compat.Missing(err) {
		h.fail(w, r, err, codeTunnel)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
