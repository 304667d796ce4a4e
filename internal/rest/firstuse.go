package rest

import (
	"net/http"
	"net/url"

	"hutch"
)

// makes is the name of the parameter that creates a sandbox. "create" was taken: it is a parameter for files.
const makes = "createSandbox"

// firstUse wraps f: if the request has the parameter createSandbox, a missing sandbox is created first.
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

// takeCreate returns the request without the parameter createSandbox, and that parameter's value.
func takeCreate(r *http.Request) (*http.Request, bool, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || !q.Has(makes) {
		return r, false, nil // f reports the error
	}
	if n := len(q[makes]); n > 1 {
		return r, false, hutch.Errorf(hutch.Invalid, "the parameter %s is given %d times: give it once", makes, n)
	}
	wanted, err := flag(q, makes)
	q.Del(makes)
	rest, to := *r, *r.URL
	to.RawQuery = q.Encode()
	rest.URL = &to
	return &rest, wanted, err
}
