package rest

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"hutch"
)

func (h *Handler) create(w http.ResponseWriter, r *http.Request) {
	var req hutch.CreateRequest
	if err := h.body(w, r, &req); err != nil {
		h.fail(w, r, err)
		return
	}
	key, err := idempotencyKey(r)
	if err == nil {
		err = checkCase(req)
	}
	switch {
	case err != nil:
		h.fail(w, r, err)
	case key == "":
		reply(h, w, r)(h.svc.Create(r.Context(), req))
	default:
		answer, again, err := h.answers.do(r, key, req, func() (any, error) { return h.svc.Create(r.Context(), req) })
		if again {
			w.Header().Set("Idempotency-Replayed", "true")
		}
		reply(h, w, r)(answer, err)
	}
}

// checkCase refuses an id with upper-case letters, and suggests the parameter of this API that converts them.
func checkCase(req hutch.CreateRequest) error {
	lower := hutch.NormalizeID(req.ID)
	if req.NormalizeID || req.ID == lower || hutch.CheckID(lower) != nil {
		return nil // the service reports other faults
	}
	return hutch.Errorf(hutch.Invalid, "the id %q has upper-case letters: write it as %q, or set normalizeId", req.ID, lower).Naming(hutch.AboutField, "sandboxId")
}

func (h *Handler) sandbox(w http.ResponseWriter, r *http.Request) {
	reply(h, w, r)(h.svc.Sandbox(r.Context(), r.PathValue("id")))
}

func (h *Handler) sandboxes(w http.ResponseWriter, r *http.Request) {
	f, p, err := filter(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	list, err := h.svc.Sandboxes(r.Context(), f)
	list, next := p.cut(list)
	linkNext(w, r, next)
	reply(h, w, r)(orEmpty(list), err)
}

func (h *Handler) instanceTypes(w http.ResponseWriter, r *http.Request) {
	list, err := h.svc.InstanceTypes(r.Context())
	reply(h, w, r)(orEmpty(list), err)
}

func (h *Handler) update(r *http.Request, req hutch.UpdateRequest) (hutch.Sandbox, error) {
	return h.svc.Update(r.Context(), r.PathValue("id"), req)
}

func (h *Handler) destroy(w http.ResponseWriter, r *http.Request) {
	q, err := query(r, "force")
	if err != nil {
		h.fail(w, r, err)
		return
	}
	force, err := flag(q, "force")
	if err != nil {
		h.fail(w, r, err)
		return
	}
	reply(h, w, r)(h.svc.Destroy(r.Context(), r.PathValue("id"), force))
}

// reply returns a function that sends a result of the service.
func reply(h *Handler, w http.ResponseWriter, r *http.Request) func(v any, err error) {
	return func(v any, err error) {
		if err != nil {
			h.fail(w, r, err)
			return
		}
		h.answer(w, r, v)
	}
}

// posts returns a handler that decodes the body, calls do, and sends the answer.
func posts[Body, Answer any](h *Handler, do func(*http.Request, Body) (Answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body Body
		if err := h.body(w, r, &body); err != nil {
			h.fail(w, r, err)
			return
		}
		reply(h, w, r)(do(r, body))
	}
}

// orEmpty replaces nil by an empty list, because JSON would show null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func filter(r *http.Request) (f hutch.Filter, p page, err error) {
	once, labels, err := repeated(r, "label")
	if err != nil {
		return f, p, err
	}
	q, err := query(once, "status", "owner", "label", "createdAfter", "createdBefore", "brief", "limit", "cursor")
	if err != nil {
		return f, p, err
	}
	f.Status, f.Owner = hutch.Status(q.Get("status")), q.Get("owner")
	for _, label := range labels {
		name, value, ok := strings.Cut(label, "=")
		if !ok || name == "" {
			return f, p, hutch.Errorf(hutch.Invalid, "the label %.80q is not NAME=VALUE: give one such as team=web", label).Naming(hutch.AboutField, "label")
		}
		if f.Labels == nil {
			f.Labels = map[string]string{}
		}
		f.Labels[name] = value
	}
	if f.CreatedAfter, err = moment(q, "createdAfter"); err != nil {
		return f, p, err
	}
	if f.CreatedBefore, err = moment(q, "createdBefore"); err != nil {
		return f, p, err
	}
	if f.Brief, err = flag(q, "brief"); err != nil {
		return f, p, err
	}
	p, err = pageOf(q)
	return f, p, err
}

func moment(q url.Values, name string) (time.Time, error) {
	v := q.Get(name)
	if v == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	if err != nil {
		return t, hutch.Errorf(hutch.Invalid, "the parameter %s is %.80q: give a time like 2006-01-02T15:04:05Z", name, v)
	}
	return t, nil
}
