package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"
	"unicode/utf8"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/httpio"
	"hutch/internal/jsonfault"
	"hutch/internal/stream"
)

const (
	bodyTime = time.Minute      // longest time for a body to arrive
	chunk    = 128 << 10        // bytes of an answer that are written at once
	pingTime = 15 * time.Second // pause between comments on a silent stream
)

// errTooLarge is answered with the status 413, which no kind of error has.
var errTooLarge = hutch.Errorf(hutch.Invalid, "the request's body is larger than %d MiB: send large data as stdin over a WebSocket", stream.MaxRequest>>20)

// body decodes the body of a request into v; an empty body leaves v unchanged.
func (h *Handler) body(w http.ResponseWriter, r *http.Request, v any) error {
	b, err := h.raw(w, r)
	if err != nil || len(b) == 0 {
		return err
	}
	return decode(b, v)
}

// raw reads the body of a request.
func (h *Handler) raw(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	b, err := httpio.ReadAll(w, r, stream.MaxRequest, bodyTime)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, errTooLarge
	}
	if errors.Is(err, hutch.Exhausted) {
		return nil, err
	}
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "the request's body did not arrive whole: send it again").Because(err)
	}
	if !caller.From(r.Context()).Budget.TakeJSON(b) {
		return nil, errManyValues
	}
	return b, nil
}

var errManyValues = hutch.Errorf(hutch.Exhausted, "the lists in the request's body take more memory than there is for the requests of this token: send fewer values at a time").
	With("limit", "memory of requests")

// decode reads JSON strictly: it refuses fields that it does not know.
func decode(b []byte, v any) error {
	if !utf8.Valid(b) {
		return hutch.Errorf(hutch.Invalid, "the body is not UTF-8, as JSON must be: send binary input as stdinBase64")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil && d.InputOffset() < int64(len(bytes.TrimRight(b, " \t\r\n"))) {
		return hutch.Errorf(hutch.Invalid, "the body continues after the end of its JSON value, at byte %d: send one value", d.InputOffset())
	}
	if err == nil {
		return nil
	}
	return jsonfault.Explain(b, v, err)
}

// query returns the parameters, and refuses any that is not in allowed.
func query(r *http.Request, allowed ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errQuery(err)
	}
	for name, values := range q {
		if !slices.Contains(allowed, name) {
			return nil, hutch.Errorf(hutch.Invalid, "there is no parameter %.80q here: %s", name, instead(allowed)).Naming(hutch.AboutField, name)
		}
		if len(values) > 1 {
			return nil, hutch.Errorf(hutch.Invalid, "the parameter %s is given %d times: give it once", name, len(values))
		}
	}
	return q, nil
}

func errQuery(err error) error {
	return hutch.Errorf(hutch.Invalid, "the query of the URL cannot be read (%v): encode names and values, with %%25 for a percent sign", err)
}

// instead lists the allowed parameters for an error.
func instead(allowed []string) string {
	if len(allowed) == 0 {
		return "this call takes none"
	}
	return "use " + hutch.JoinNames(allowed, "or")
}

// repeated removes a parameter from a request. It returns the other part of the request and the values of the
// parameter, which can be given several times.
func repeated(r *http.Request, name string) (*http.Request, []string, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, nil, errQuery(err)
	}
	values := q[name]
	q.Del(name)
	rest := *r
	rest.URL = &url.URL{RawQuery: q.Encode()}
	return &rest, values, nil
}

// flag reads a parameter that is true, false or missing; without a value it is true.
func flag(q url.Values, name string) (bool, error) {
	switch v := q.Get(name); {
	case v == "true" || v == "1" || v == "" && q.Has(name):
		return true, nil
	case v == "false" || v == "0" || v == "":
		return false, nil
	default:
		return false, hutch.Errorf(hutch.Invalid, "the parameter %s is %.80q: use true or false", name, v)
	}
}

// errNoRoom is the error for an answer that does not fit into the memory budget of the caller's unread answers.
var errNoRoom = hutch.Errorf(hutch.Exhausted, "the answers that wait for you to read them leave no room for this one: read those, or ask for less at a time").With("limit", "memory of answers")

// answer sends v as JSON.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, v any) {
	b, err := json.Marshal(v)
	if err == nil && len(b) > chunk && !caller.From(r.Context()).Budget.Take(len(b)) {
		err = errNoRoom
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.write(w, r, b)
}

// report sends the result of a command or run. It is never refused for its size, because its output was already limited
// when it was collected.
func (h *Handler) report(w http.ResponseWriter, r *http.Request, result any) {
	b, err := json.Marshal(result)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.write(w, r, b)
}

func (h *Handler) write(w http.ResponseWriter, r *http.Request, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	h.writer(w, r).Write(b) // an error means that the client has disconnected
}

// writer writes an answer. The client must read each piece in time.
func (h *Handler) writer(w http.ResponseWriter, r *http.Request) *httpio.Writer {
	return httpio.NewWriter(w, r, h.stall)
}
