package compat

import (
	"maps"
	"net/http"
	"net/url"
	"slices"

	"hutch"
)

// CheckQuery refuses a request whose URL has a parameter that its call does not have: a filter that is not there would
// show everything as if it had matched. The error names the parameter.
func CheckQuery(r *http.Request, known ...string) error {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return hutch.Errorf(hutch.Invalid, "the query of the URL cannot be read (%v): encode names and values, with %%25 for a percent sign", err)
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(known, name) {
			return hutch.Errorf(hutch.Unsupported, "this server does not have the parameter %.200q: leave it out", name).Naming(hutch.AboutField, name)
		}
	}
	return nil
}
