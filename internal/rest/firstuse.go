package rest

import (
	"net/http"
	"net/url"

	"hutch"
)

// firstUse is f for a sandbox that is made before if there is none, where the
// parameter create asks for that.
func (h *Handler) firstUse(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rest, wanted, err := takeCreate(r)
		if err == nil && wanted {
			_, err = h.svc.Create(r.Context(), hutch.CreateRequest{ID: r.PathValue("id")})
		}
		if err != nil {
			h.fail(w, r, err)
			return
		}
		f(w, rest)
	}
}

// takeCreate is the request without the parameter create, and what that said.
func takeCreate(r *http.Request) (*http.Request, bool, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || !q.Has("create") {
		return r, false, nil // f says what is wrong with it
	}
	if n := len(q["create"]); n > 1 {
		return r, false, hutch.Errorf(hutch.Invalid, "the parameter create is given %d times: give it once", n)
	}
	wanted, err := flag(q, "create")
	q.Del("create")
	rest, to := *r, *r.URL
	to.RawQuery = q.Encode()
	rest.URL = &to
	return &rest, wanted, err
}
