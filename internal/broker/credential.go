package broker

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"strings"

	"hutch"
	"hutch/internal/secret"
)

// add puts a credential into an outgoing request, and reports whether the request asked for it.
func add(c secret.Credential, out *http.Request) bool {
	kind, name, err := hutch.ParsePlacement(c.As)
	if err != nil {
		return false // the placement was checked when the secret was set
	}
	switch kind {
	case hutch.AsHeader:
		out.Header.Set(name, strings.Replace(cmp.Or(c.Format, "{}"), "{}", c.Value, 1))
	case hutch.AsBasic:
		out.SetBasicAuth(name, c.Value)
	case hutch.AsQuery:
		q := out.URL.Query()
		q.Set(name, c.Value)
		out.URL.RawQuery = q.Encode()
	case hutch.AsReplace:
		return replace(c, out.Header)
	}
	return true
}

// replace replaces the placeholder by the value, in all headers.
func replace(c secret.Credential, h http.Header) (found bool) {
	for _, values := range h {
		for i, v := range values {
			if values[i] = replaceIn(v, c); values[i] != v {
				found = true
			}
		}
	}
	return found
}

// replaceIn also replaces inside the one value that clients encode: user and password of basic authentication.
func replaceIn(text string, c secret.Credential) string {
	if scheme, coded, ok := strings.Cut(text, " "); ok && strings.EqualFold(scheme, "basic") {
		if pair, err := base64.StdEncoding.DecodeString(coded); err == nil {
			return scheme + " " + base64.StdEncoding.EncodeToString([]byte(strings.ReplaceAll(string(pair), c.Placeholder, c.Value)))
		}
	}
	return strings.ReplaceAll(text, c.Placeholder, c.Value)
}
