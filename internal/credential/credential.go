// Package credential finds the token of a request. Clients of different APIs send it in different places, and every
// place takes every token:
//
//	Authorization: Bearer TOKEN
//	Authorization: Basic ...      the password; the name, if there is no password
//	X-API-Key: TOKEN
//	?access_token=TOKEN           for clients that cannot set headers (RFC 6750); not for MCP, which forbids it
//	Sec-WebSocket-Protocol: hutch, hutch.token.TOKEN
//	                              for web pages, which can set no other header of the request that opens a WebSocket
//
// The first place that holds anything counts. A header that is there twice counts as no token, because a proxy before
// the server might have read the other one.
package credential

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
)

const (
	keyHeader = "X-Api-Key"
	parameter = "access_token"
)

// Headers are the headers that can hold a token, each with what reads the token in its value.
var Headers = map[string]func(value string) string{"Authorization": inAuthorization, keyHeader: strings.TrimSpace}

// Of returns the token of a request, or "".
func Of(r *http.Request) string {
	for _, name := range []string{"Authorization", keyHeader} {
		switch given := r.Header.Values(name); len(given) {
		case 0:
		case 1:
			if token := Headers[name](given[0]); token != "" {
				return token
			}
		default:
			return ""
		}
	}
	if token := inQuery(r.URL); token != "" {
		return token
	}
	return inSubprotocols(r.Header)
}

// inAuthorization returns the token in the value of a header Authorization, or "".
func inAuthorization(value string) string {
	scheme, rest, _ := strings.Cut(value, " ")
	rest = strings.TrimSpace(rest)
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		return rest
	case !strings.EqualFold(scheme, "Basic"):
		return ""
	}
	text, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		return ""
	}
	name, password, _ := strings.Cut(string(text), ":")
	if password != "" {
		return password
	}
	return name
}

func inQuery(u *url.URL) string {
	if u.Path == "/mcp" || u.RawQuery == "" {
		return ""
	}
	given := u.Query()[parameter]
	if len(given) != 1 {
		return ""
	}
	return given[0]
}

// subprotocol begins the name of a subprotocol that holds a token.
const subprotocol = "hutch.token."

// inSubprotocols returns the token among the subprotocols that a WebSocket client offers, or "". Two tokens count as none.
func inSubprotocols(h http.Header) string {
	token := ""
	for _, line := range h["Sec-Websocket-Protocol"] {
		for name := range strings.SplitSeq(line, ",") {
			found, ok := strings.CutPrefix(strings.TrimSpace(name), subprotocol)
			switch {
			case ok && token != "":
				return ""
			case ok:
				token = found
			}
		}
	}
	return token
}

// Hide removes the token from the URL of a request, so that nothing after this point writes it down or refuses it.
func Hide(r *http.Request) {
	if r.URL.RawQuery == "" {
		return
	}
	var kept []string
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		name, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); err != nil || plain != parameter {
			kept = append(kept, part)
		}
	}
	r.URL.RawQuery = strings.Join(kept, "&")
	r.RequestURI = r.URL.RequestURI()
}

const hexPrefix = "e2b_"

// Decoded returns the token that is written as "e2b_" and its bytes in hexadecimal digits: E2B's clients before 2.46
// accept no other form of a key.
func Decoded(token string) (string, bool) {
	digits, ok := strings.CutPrefix(token, hexPrefix)
	if !ok || digits == "" {
		return "", false
	}
	text, err := hex.DecodeString(digits)
	return string(text), err == nil
}

// Encoded writes a token in the form that Decoded reads.
func Encoded(token string) string { return hexPrefix + hex.EncodeToString([]byte(token)) }
