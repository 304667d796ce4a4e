package jupyter

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	"hutch"
	"hutch/internal/compat"
)

// session connects a document of a client with a kernel. It is kept in the label of the kernel, so a kernel has one at
// most.
type session struct {
	ID   string `json:"id"`
	Path string `json:"path"`
	Name string `json:"name"`
	Type string `json:"type"`
}

// sessionModel is a session as clients read it.
type sessionModel struct {
	session
	Kernel   model             `json:"kernel"`
	Notebook map[string]string `json:"notebook,omitempty"` // for clients older than Jupyter 5
}

func (h *Handler) sessionModel(k known) sessionModel {
	m := sessionModel{session: *k.entry.Session, Kernel: h.model(k)}
	if m.Type == "notebook" {
		m.Notebook = map[string]string{"path": m.Path, "name": m.Name}
	}
	return m
}

// sessionRequest asks for a new session, or for changes to a session.
type sessionRequest struct {
	ID     string  `json:"id"`
	Path   *string `json:"path"`
	Name   *string `json:"name"`
	Type   *string `json:"type"`
	Kernel *struct {
		ID   *string           `json:"id"`
		Name *string           `json:"name"`
		Env  map[string]string `json:"env"`

		// Clients send back fields that they have read.
		Active      any `json:"last_activity"`
		State       any `json:"execution_state"`
		Connections any `json:"connections"`
	} `json:"kernel"`
	Notebook any `json:"notebook"`
}

// env returns the part of the request with the kernel's environment, which can name a user.
func (q sessionRequest) env() map[string]string {
	if q.Kernel == nil {
		return nil
	}
	return q.Kernel.Env
}

// maxSession limits the fields of a session together, in bytes of JSON: it is part of a label.
const maxSession = 700

// change sets the fields that the request names.
func (q sessionRequest) change(s *session) error {
	for to, from := range map[*string]*string{&s.Path: q.Path, &s.Name: q.Name, &s.Type: q.Type} {
		if from != nil {
			*to = *from
		}
	}
	if b, _ := json.Marshal(s); len(b) > maxSession {
		return hutch.Errorf(hutch.Invalid, "the path, name and type of the session are too long: at most %d bytes are allowed", maxSession)
	}
	return nil
}

func (h *Handler) sessions(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	list, err := h.visible(r, nil)
	if err != nil {
		return 0, nil, err
	}
	models := []sessionModel{}
	for _, k := range list {
		if k.entry.Session != nil {
			models = append(models, h.sessionModel(k))
		}
	}
	return http.StatusOK, models, nil
}

// sessionNamed finds the kernel of the session that the path names.
func (h *Handler) sessionNamed(r *http.Request) (known, error) {
	list, err := h.visible(r, nil)
	for _, k := range list {
		if k.entry.Session != nil && k.entry.Session.ID == r.PathValue("session") {
			return k, nil
		}
	}
	return known{}, cmp.Or(err, error(hutch.Errorf(hutch.NotFound, "Session not found: %.60s", r.PathValue("session"))))
}

func (h *Handler) session(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	k, err := h.sessionNamed(r)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, h.sessionModel(k), nil
}

// startSession makes a session, with a new kernel, or with the kernel that the request names. If the path has a session
// already, that session is returned.
func (h *Handler) startSession(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var q sessionRequest
	err := compat.ReadJSON(w, r, &q)
	if err == nil && (q.Path == nil || *q.Path == "") {
		err = hutch.Errorf(hutch.Invalid, "Missing field in JSON data: path")
	}
	if err != nil {
		return 0, nil, err
	}
	list, err := h.visible(r, q.env())
	if err != nil {
		return 0, nil, err
	}
	for _, k := range list {
		if s := k.entry.Session; s != nil && s.Path == *q.Path {
			return http.StatusCreated, h.sessionModel(k), nil
		}
	}
	s := &session{ID: place{newHalf(), newHalf()}.String(), Type: "notebook"}
	if err := q.change(s); err != nil {
		return 0, nil, err
	}
	k, err := h.kernelFor(r, q, s, defaultSpec)
	if err != nil {
		return 0, nil, err
	}
	w.Header().Set("Location", Prefix+"/api/sessions/"+s.ID)
	return http.StatusCreated, h.sessionModel(k), nil
}

// kernelFor gives a session the kernel that a request names by its id, or else a new one.
func (h *Handler) kernelFor(r *http.Request, q sessionRequest, s *session, usual string) (known, error) {
	var req request
	id := ""
	if q.Kernel != nil {
		if q.Kernel.ID != nil {
			id = *q.Kernel.ID
		}
		if q.Kernel.Name != nil {
			req.Name = *q.Kernel.Name
		}
		req.Env = q.Kernel.Env
	}
	req.Name = cmp.Or(req.Name, usual)
	user, err := userOf(r, req.Env)
	if err != nil {
		return known{}, err
	}
	if id == "" {
		return h.create(r.Context(), user, req, s)
	}
	k, err := h.find(r.Context(), user, id)
	if err != nil {
		return known{}, err
	}
	return h.attach(r.Context(), k, s)
}

// attach gives a kernel a session, or removes it with nil.
func (h *Handler) attach(ctx context.Context, k known, s *session) (known, error) {
	k.entry.Session = s
	var err error
	k.box, err = h.relabel(ctx, k.place, func(l map[string]string) { l[kernelLabel+k.code] = k.entry.text() })
	return k, err
}

// changeSession renames a session, or gives it another kernel. The old kernel is shut down, as by a Jupyter server.
func (h *Handler) changeSession(w http.ResponseWriter, r *http.Request) (int, any, error) {
	k, err := h.sessionNamed(r)
	if err != nil {
		return 0, nil, err
	}
	var q sessionRequest
	if err := compat.ReadJSON(w, r, &q); err != nil {
		return 0, nil, err
	}
	s := *k.entry.Session
	if err := q.change(&s); err != nil {
		return 0, nil, err
	}
	next, err := h.changedKernel(r, q, k, &s)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, h.sessionModel(next), nil
}

func (h *Handler) changedKernel(r *http.Request, q sessionRequest, k known, s *session) (known, error) {
	asked := q.Kernel
	same := asked == nil || asked.ID == nil && asked.Name == nil || asked.ID != nil && *asked.ID == k.String()
	if same {
		return h.attach(r.Context(), k, s)
	}
	next, err := h.kernelFor(r, q, s, k.entry.Name)
	if err != nil {
		return next, err
	}
	return next, h.end(r.Context(), k)
}

// endSession shuts the kernel of a session down.
func (h *Handler) endSession(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	k, err := h.sessionNamed(r)
	if err == nil {
		err = h.end(r.Context(), k)
	}
	return http.StatusNoContent, nil, err
}
