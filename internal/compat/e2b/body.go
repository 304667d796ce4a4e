package e2b

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/compat/e2b/seam"
	"hutch/internal/jsonfault"
)

// maxBody is the longest request of the control plane, in bytes.
const maxBody = 1 << 20

// read decodes the body of a request into a struct; an empty body leaves it unchanged. A field that the struct does not
// have is an option that this server does not support, so the request is refused and the error names the option.
func read(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return hutch.Errorf(hutch.Invalid, "the request has over %d bytes", maxBody)
	}
	if err != nil {
		return hutch.Errorf(hutch.Invalid, "the request could not be read to its end: send it again").Because(err)
	}
	return decode(body, into)
}

func decode(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return jsonfault.Explain(body, &fields, err)
	}
	known := names(reflect.TypeOf(into).Elem())
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch {
		case slices.Contains(known, name):
		case string(fields[name]) != "null":
			return unsupported(name)
		default:
			delete(fields, name)
		}
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields() // in nested structs
	if err := d.Decode(into); err != nil {
		if f := jsonfault.Find(body, into, err); f != nil && f.Unknown {
			return unsupported(f.Path)
		}
		return jsonfault.Explain(body, into, err)
	}
	return nil
}

// parameters are the parameters of the routes that have some.
var parameters = map[string][]string{
	"GET /sandboxes":              ofList,
	"GET /v2/sandboxes":           ofList,
	"GET /sandboxes/metrics":      {"sandbox_ids"},
	"GET /sandboxes/{id}/metrics": {"start", "end"},
	"GET /sandboxes/{id}/logs":    {"start", "limit", "direction", "level", "search"},
	"GET /v2/sandboxes/{id}/logs": {"cursor", "limit", "direction", "level", "search"},

	"GET /secrets":   {"limit", "nextToken"},
	"GET /snapshots": {"sandboxID", "name", "limit", "nextToken"},

	"PUT /templates/{id}/files/{hash}":          {"owner", "expires", "signature"},
	"GET /templates/{id}/builds/{build}/status": {"logsOffset", "limit", "level"},
}

var ofList = []string{"metadata", "state", "order", "startedAfter", "template", "limit", "nextToken"}

// lists are the parameters that can be given several times.
var lists = []string{"sandbox_ids", "state"}

// checkQuery refuses a request with a parameter that its route does not have: if a filter were ignored, everything
// would look as if it had matched. It also refuses a parameter that is given twice, unless the parameter is a list:
// some clients repeat the parameter for each value of a list.
func checkQuery(r *http.Request, known []string) error {
	if name, unknown := seam.UnknownParameter(r, known...); unknown {
		return unsupported(name)
	}
	if name, repeated := seam.RepeatedParameter(r, lists...); repeated {
		return hutch.Errorf(hutch.Invalid, "the parameter %.100q is given several times: give it once", name).Naming(hutch.AboutField, name)
	}
	return nil
}

// names returns the JSON names of a struct's fields.
func names(t reflect.Type) (list []string) {
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		list = append(list, name)
	}
	return list
}

// unsupported refuses an option of E2B by its name.
func unsupported(option string) error {
	return hutch.Errorf(hutch.Unsupported, "this server cannot do what the option %.100q asks for: leave it out", option).Naming(hutch.AboutField, option)
}
