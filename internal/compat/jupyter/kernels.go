package jupyter

import (
	"net/http"
	"time"

	"hutch"
	"hutch/internal/compat"
)

// date is a time with the number of digits that all clients can read.
type date struct{ time.Time }

func (d date) String() string { return d.UTC().Format("2006-01-02T15:04:05.000000Z") }

func (d date) MarshalJSON() ([]byte, error) { return []byte(`"` + d.String() + `"`), nil }

// model is a kernel as clients read it.
type model struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Active      date   `json:"last_activity"`
	State       string `json:"execution_state"`
	Connections int    `json:"connections"`
}

func (h *Handler) model(k known) model {
	m := model{ID: k.String(), Name: k.entry.Name, Active: date{k.box.LastUsedAt}, State: idle}
	if live := h.live(k); live != nil {
		live.mu.Lock()
		defer live.mu.Unlock()
		m.State, m.Connections = live.state, len(live.clients)
		if live.active.After(m.Active.Time) {
			m.Active = date{live.active}
		}
	}
	return m
}

// visible lists the kernels that a request can see, and forgets deleted kernels. env can name the user of the request.
func (h *Handler) visible(r *http.Request, env map[string]string) ([]known, error) {
	user, err := userOf(r, env)
	if err != nil {
		return nil, err
	}
	before := h.lives(compat.Owner(r.Context())) // others can be added while the list is made
	list, err := h.all(r.Context(), user)
	if err == nil && user == "" {
		h.forgetMissing(before, list)
	}
	return list, err
}

// named finds the kernel that the path names.
func (h *Handler) named(r *http.Request) (known, error) {
	user, err := userOf(r, nil)
	if err != nil {
		return known{}, err
	}
	return h.find(r.Context(), user, r.PathValue("kernel"))
}

func (h *Handler) list(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	list, err := h.visible(r, nil)
	if err != nil {
		return 0, nil, err
	}
	models := []model{}
	for _, k := range list {
		models = append(models, h.model(k))
	}
	return http.StatusOK, models, nil
}

func (h *Handler) start(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req request
	if err := compat.ReadJSON(w, r, &req); err != nil {
		return 0, nil, err
	}
	user, err := userOf(r, req.Env)
	if err != nil {
		return 0, nil, err
	}
	k, err := h.create(r.Context(), user, req, nil)
	if err != nil {
		return 0, nil, err
	}
	w.Header().Set("Location", Prefix+"/api/kernels/"+k.String())
	return http.StatusCreated, h.model(k), nil
}

func (h *Handler) get(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	k, err := h.named(r)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, h.model(k), nil
}

func (h *Handler) remove(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	k, err := h.named(r)
	if err == nil {
		err = h.end(r.Context(), k)
	}
	return http.StatusNoContent, nil, err
}

func (h *Handler) interrupt(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	k, err := h.named(r)
	if err == nil {
		err = h.stop(r.Context(), k)
	}
	return http.StatusNoContent, nil, err
}

func (h *Handler) restart(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	k, err := h.named(r)
	if err == nil {
		err = h.again(r.Context(), k)
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, h.model(k), nil
}

// errShut is the cause that ends the work of a kernel.
var errShut = hutch.Errorf(hutch.Conflict, "the kernel was restarted or shut down")
