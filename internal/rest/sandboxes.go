package rest

import (
	"net/http"
	"net/url"
	"time"

	"hutch"
)

func (h *Handler) create(w http.ResponseWriter, r *http.Request) {
	var req hutch.CreateRequest
	if err := h.body(w, r, &req); err != nil {
		h.fail(w, r, err)
		return
	}
	reply(h, w, r)(h.svc.Create(r.Context(), req))
}

func (h *Handler) sandbox(w http.ResponseWriter, r *http.Request) {
	reply(h, w, r)(h.svc.Sandbox(r.Context(), r.PathValue("id")))
}

func (h *Handler) sandboxes(w http.ResponseWriter, r *http.Request) {
	f, err := filter(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	list, err := h.svc.Sandboxes(r.Context(), f)
	reply(h, w, r)(orEmpty(list), err)
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

// reply sends what a method of the service returned.
func reply(h *Handler, w http.ResponseWriter, r *http.Request) func(v any, err error) {
	return func(v any, err error) {
		if err != nil {
			h.fail(w, r, err)
			return
		}
		h.answer(w, r, v)
	}
}

// orEmpty keeps null out of JSON.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func filter(r *http.Request) (f hutch.Filter, err error) {
	q, err := query(r, "status", "owner", "createdAfter", "createdBefore")
	if err != nil {
		return f, err
	}
	f.Status, f.Owner = hutch.Status(q.Get("status")), q.Get("owner")
	switch f.Status {
	case "", hutch.Creating, hutch.Running, hutch.Hibernated, hutch.Stopped, hutch.Failed, hutch.Destroyed:
	default:
		return f, hutch.Errorf(hutch.Invalid, "there is no status %.80q: use creating, running, hibernated, stopped or error", f.Status)
	}
	if f.CreatedAfter, err = moment(q, "createdAfter"); err != nil {
		return f, err
	}
	f.CreatedBefore, err = moment(q, "createdBefore")
	return f, err
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
