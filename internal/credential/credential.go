// Package credential finds the token of a request. Clients of different APIs send it in different places, and every
// place accepts every token:
//
//	Authorization: Bearer TOKEN
//	Authorization: token TOKEN    as clients of Jupyter write it
//	Authorization: Basic ...      the password; the name, if there is no password
//	X-API-Key: TOKEN
//	X-Auth-Token: TOKEN           Judge0's clients
//	?access_token=TOKEN           for clients that cannot set headers (RFC 6750); not for MCP, which forbids it, and not
//	                              for pages of sandboxes, whose scripts can read their own address
//	?token=TOKEN                  the same for clients of Jupyter, below /jupyter/ only
//	Sec-WebSocket-Protocol: hutch, hutch.token.TOKEN
//	                              for web pages, which can set no other header of the request that opens a WebSocket
//
// The first place with a value counts. A repeated header counts as no token, because a proxy before the server might
// have read the other one. A password that a browser adds to the request of another site's page does not count either,
// because the page does not know that password.
package credential

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	keyHeader        = "X-Api-Key"
	authHeader       = "X-Auth-Token"
	parameter        = "access_token"
	jupyterParameter = "token"
)

// The cookies of a browser that is signed in to the console: the first over HTTP, the second over TLS. They are not
// tokens: package console decides which requests can use them.
const (
	SessionCookie     = "hutch_session"
	HostSessionCookie = "__Host-" + SessionCookie
)

// headers are the headers that can hold a token, each with the function that reads the token from its value.
var headers = map[string]func(value string) string{"Authorization": inAuthorization, keyHeader: strings.TrimSpace, authHeader: strings.TrimSpace}

// Of returns the token of a request, or "".
func Of(r *http.Request) string {
	for _, name := range []string{"Authorization", keyHeader, authHeader} {
		switch given := r.Header.Values(name); len(given) {
		case 0:
		case 1:
			if token := headers[name](given[0]); token != "" && !(isBasic(given[0]) && addedByBrowser(r)) {
				return token
			}
		default:
			return ""
		}
	}
	if token := inQuery(r.URL, parameterOf(r.URL)); token != "" {
		return token
	}
	return inSubprotocols(r.Header)
}

// None reports whether a request has no value in any of the places for a token, not even one that counts as no token.
func None(r *http.Request) bool {
	for name := range headers {
		if len(r.Header.Values(name)) > 0 {
			return false
		}
	}
	return !r.URL.Query().Has(parameterOf(r.URL)) && !strings.Contains(strings.Join(r.Header[protocols], ","), subprotocol)
}

func isBasic(value string) bool { return len(value) > 5 && strings.EqualFold(value[:6], "Basic ") }

// addedByBrowser reports whether a page of another site can have made a request, so that the browser added the password
// that a person once entered. It is false for a request with an Origin, because package guard checks the Origin.
func addedByBrowser(r *http.Request) bool {
	from := r.Header.Get("Sec-Fetch-Site")
	return r.Header.Get("Origin") == "" && (from == "cross-site" || from == "same-site")
}

// inAuthorization returns the token in the value of a header Authorization, or "".
func inAuthorization(value string) string {
	scheme, rest, _ := strings.Cut(value, " ")
	rest = strings.TrimSpace(rest)
	switch {
	case strings.EqualFold(scheme, "Bearer"), strings.EqualFold(scheme, "token"):
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

// parameterOf returns the name of the parameter that can hold the token of a request. Jupyter's name counts only below
// /jupyter/, because other programs use that name for other things.
func parameterOf(u *url.URL) string {
	if strings.HasPrefix(u.Path, "/jupyter/") && !u.Query().Has(parameter) {
		return jupyterParameter
	}
	return parameter
}

func inQuery(u *url.URL, parameter string) string {
	if u.Path == "/mcp" || u.RawQuery == "" || isPage(u.Path) {
		return ""
	}
	given := u.Query()[parameter]
	if len(given) != 1 {
		return ""
	}
	return given[0]
}

// pages are the paths at which a browser shows files or servers of a sandbox as a page, with scripts. A path that ends
// with a slash includes all paths below it.
var pages = []string{"/openterminal/files/view", "/openterminal/files/serve/", "/openterminal/proxy/"}

func isPage(path string) bool {
	return slices.ContainsFunc(pages, func(p string) bool {
		return path == p || strings.HasSuffix(p, "/") && strings.HasPrefix(path, p)
	})
}

const (
	protocols = "Sec-Websocket-Protocol"
	// subprotocol is the prefix of the name of a subprotocol that holds a token.
	subprotocol = "hutch.token."
)

// inSubprotocols returns the token among the subprotocols that a WebSocket client offers, or "". Two tokens count as
// none.
func inSubprotocols(h http.Header) string {
	token := ""
	for _, line := range h[protocols] {
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

// Hide removes the token from the URL of a request, so that no later code logs it or refuses it.
func Hide(r *http.Request) {
	if r.URL.RawQuery == "" {
		return
	}
	var kept []string
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		name, _, _ := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(name)
		hidden := plain == parameter || plain == jupyterParameter && strings.HasPrefix(r.URL.Path, "/jupyter/")
		if err != nil || !hidden {
			kept = append(kept, part)
		}
	}
	r.URL.RawQuery = strings.Join(kept, "&")
	r.RequestURI = r.URL.RequestURI()
}

// Strip removes the tokens for which known returns true from every place of a request, and changes nothing else.
func Strip(r *http.Request, known func(token string) bool) {
	for name, token := range headers {
		if given := r.Header[name]; len(given) > 0 {
			r.Header[name] = slices.DeleteFunc(given, func(value string) bool { return known(token(value)) })
		}
	}
	r.URL.RawQuery = without(r.URL.RawQuery, "&", func(part string) bool {
		name, value, _ := strings.Cut(part, "=")
		plain, bad := url.QueryUnescape(name)
		token, worse := url.QueryUnescape(value)
		return bad == nil && worse == nil && (plain == parameter || plain == jupyterParameter) && known(token)
	})
	lines := r.Header[protocols]
	for i, line := range lines {
		lines[i] = without(line, ",", func(name string) bool {
			token, ok := strings.CutPrefix(strings.TrimSpace(name), subprotocol)
			return ok && known(token)
		})
	}
	if len(lines) > 0 {
		r.Header[protocols] = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
	}
}

// without returns a list without the elements for which drop returns true.
func without(list, separator string, drop func(string) bool) string {
	return strings.Join(slices.DeleteFunc(strings.Split(list, separator), drop), separator)
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
