package compat

import (
	"maps"
	"net/http"
	"net/url"
	"slices"

	"hutch"
)

// CheckQuery refuses a request whose URL has a parameter that its call does not have: if a filter were ignored,
// everything would look as if it had matched. It also refuses a parameter that is given twice, because only one of the
// values would count. The error names the parameter.
func CheckQuery(r *http.Request, known ...string) error {
	return CheckQueryWithLists(r, nil, known...)
}

// CheckQueryWithLists does the same as CheckQuery, for a call with parameters that are lists: such parameters can be
// given several times.
func CheckQueryWithLists(r *http.Request, lists []string, known ...string) error {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return hutch.Errorf(hutch.Invalid, "the query of the URL cannot be read (%v): encode names and values, with %%25 for a percent sign", err)
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(known, name) {
			return hutch.Errorf(hutch.Unsupported, "this server does not have the parameter %.200q: leave it out", name).Naming(hutch.AboutField, name)
		}
		if n := len(q[name]); n > 1 && !slices.Contains(lists, name) {
			return hutch.Errorf(hutch.Invalid, "the parameter %.200q is given %d times: give it once", name, n).Naming(hutch.AboutField, name)
		}
	}
	return nil
}
