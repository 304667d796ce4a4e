// Package problem is the format of errors over HTTP: problem details (RFC 9457) with the kind of the error and its
// data. The only table of kinds and statuses is here; the server writes with it and the client reads.
package problem

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"hutch"
)

// ContentType is the media type of a [Details] body.
const ContentType = "application/problem+json"

// Details is the body of an error answer.
type Details struct {
	Type   string         `json:"type"` // always "about:blank": the kind identifies the problem
	Title  string         `json:"title"`
	Status int            `json:"status"`
	Detail string         `json:"detail"`
	Kind   hutch.Kind     `json:"kind"`
	Data   map[string]any `json:"data,omitempty"`
	// Result is a command's output until the error ended it.
	Result *hutch.ExecResult `json:"result,omitempty"`
}

var statuses = map[hutch.Kind]int{
	hutch.Invalid:  http.StatusBadRequest,
	hutch.Denied:   http.StatusForbidden,
	hutch.NotFound: http.StatusNotFound,
	hutch.Conflict: http.StatusConflict,
	// A limit of the caller or of its sandbox: the call can succeed later,
	// or after something was freed.
	hutch.Exhausted: http.StatusTooManyRequests,
	// The request is well formed, but not possible with this runtime or image. The status is not 501, which tells
	// proxies and monitors that the server is at fault.
	hutch.Unsupported: http.StatusUnprocessableEntity,
	hutch.Unavailable: http.StatusServiceUnavailable,
	hutch.Timeout:     http.StatusGatewayTimeout,
	hutch.Internal:    http.StatusInternalServerError,
}

// Status returns the HTTP status of a kind.
func Status(k hutch.Kind) int {
	if status, ok := statuses[k]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// New describes err.
func New(err error) Details {
	e := hutch.AsError(err)
	status := Status(e.Kind)
	return Details{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: e.Message, Kind: e.Kind, Data: e.Data,
	}
}

// Write answers with err.
func Write(w http.ResponseWriter, err error) { New(err).Write(w) }

// Write answers with d. The value "retryAfter" of its data, in seconds, becomes the
// header Retry-After; a missing scope becomes a challenge.
func (d Details) Write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", ContentType)
	h.Set("Cache-Control", "no-store")
	retryAfter(h, d.Data)
	if words := Challenge(d.Data); words != "" {
		h.Set("WWW-Authenticate", words)
	}
	w.WriteHeader(d.Status)
	json.NewEncoder(w).Encode(d) // an error means that the client has disconnected
}

// RetryAfter sets the header Retry-After, if err says when to try again.
func RetryAfter(h http.Header, err error) { retryAfter(h, hutch.AsError(err).Data) }

func retryAfter(h http.Header, data map[string]any) {
	if after, ok := seconds(data["retryAfter"]); ok {
		h.Set("Retry-After", strconv.Itoa(after))
	}
}

// Challenge tells a client, in the header WWW-Authenticate, which scope its token lacks (RFC 6750) and where the client
// can request it. It is empty for data of other errors.
func Challenge(data map[string]any) string {
	scope, _ := data["scope"].(string)
	if scope == "" {
		return ""
	}
	words := fmt.Sprintf(`Bearer realm="hutch", error="insufficient_scope", scope=%q`, scope)
	if from, _ := data["resourceMetadata"].(string); from != "" {
		words += fmt.Sprintf(`, resource_metadata=%q`, from)
	}
	return words
}

func seconds(v any) (int, bool) {
	switch v := v.(type) {
	case int:
		return v, true
	case int64:
		return int(v), true
	case float64:
		return int(math.Ceil(v)), true
	case hutch.Seconds:
		return int(math.Ceil(float64(v))), true
	}
	return 0, false
}

// Err returns the error that d describes, with the kind it had on the server.
func (d Details) Err() *hutch.Error {
	return &hutch.Error{Kind: d.Kind, Message: d.Detail, Data: d.Data}
}

// Read parses the body of an answer with an error status. A body without problem details came from another server on
// the way, such as a proxy: its status then chooses the kind.
func Read(status int, body []byte) Details {
	var d Details
	if err := json.Unmarshal(body, &d); err == nil && statuses[d.Kind] != 0 {
		return d
	}
	return Details{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Kind: kindOf(status),
		Detail: fmt.Sprintf("the server answered %d %s, and not in Hutch's form: check the URL, and what stands between", status, http.StatusText(status)),
	}
}

func kindOf(status int) hutch.Kind {
	switch {
	case status == http.StatusUnauthorized:
		return hutch.Denied
	case status == http.StatusBadGateway:
		return hutch.Unavailable
	}
	for kind, s := range statuses {
		if s == status {
			return kind
		}
	}
	if status >= 500 {
		return hutch.Internal
	}
	return hutch.Invalid
}
