package credential

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

func basic(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }

func TestOf(t *testing.T) {
	t.Parallel()
	type header map[string][]string
	for _, c := range []struct {
		name, url string
		header    header
		want      string
	}{
		{"nothing", "/", nil, ""},
		{"bearer", "/", header{"Authorization": {"Bearer tok"}}, "tok"},
		{"another case, more space", "/", header{"Authorization": {"bearer   tok "}}, "tok"},
		{"Jupyter's scheme", "/", header{"Authorization": {"token tok"}}, "tok"},
		{"Jupyter's parameter", "/jupyter/api/kernels?token=t%6fk", nil, "tok"},
		{"Jupyter's parameter twice", "/jupyter/api/kernels?token=tok&token=tok", nil, ""},
		{"ours before Jupyter's", "/jupyter/api?token=other&access_token=tok", nil, "tok"},
		{"Jupyter's parameter elsewhere", "/v1/sandboxes?token=tok", nil, ""},
		{"two of them", "/", header{"Authorization": {"Bearer tok", "Bearer other"}}, ""},
		{"two of them and a key", "/", header{"Authorization": {"Bearer tok", "Bearer tok"}, "X-Api-Key": {"tok"}}, ""},
		{"key", "/", header{"X-Api-Key": {"tok"}}, "tok"},
		{"two keys", "/", header{"X-Api-Key": {"tok", "tok"}}, ""},
		{"bearer before key", "/", header{"Authorization": {"Bearer tok"}, "X-Api-Key": {"other"}}, "tok"},
		{"password", "/", header{"Authorization": {basic("user:tok")}}, "tok"},
		{"password with colons", "/", header{"Authorization": {basic("user:a:b")}}, "a:b"},
		{"name without password", "/", header{"Authorization": {basic("tok:")}}, "tok"},
		{"name alone", "/", header{"Authorization": {basic("tok")}}, "tok"},
		{"no base64", "/", header{"Authorization": {"Basic !"}}, ""},
		{"empty basic and a key", "/", header{"Authorization": {basic(":")}, "X-Api-Key": {"tok"}}, "tok"},
		{"password, by a page of another site", "/", header{"Authorization": {basic("user:tok")}, "Sec-Fetch-Site": {"cross-site"}}, ""},
		{"password, by a page of another host of the domain", "/", header{"Authorization": {basic("user:tok")}, "Sec-Fetch-Site": {"same-site"}}, ""},
		{"password, by a page of an origin that the server allows", "/", header{"Authorization": {basic("user:tok")}, "Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://app.example"}}, "tok"},
		{"password, by a page of the server", "/", header{"Authorization": {basic("user:tok")}, "Sec-Fetch-Site": {"same-origin"}}, "tok"},
		{"bearer, by a page of another site", "/", header{"Authorization": {"Bearer tok"}, "Sec-Fetch-Site": {"cross-site"}}, "tok"},
		{"another scheme", "/", header{"Authorization": {"Digest tok"}}, ""},
		{"query", "/x?a=b&access_token=t%6fk", nil, "tok"},
		{"query twice", "/x?access_token=tok&access_token=tok", nil, ""},
		{"subprotocol", "/x", header{"Sec-Websocket-Protocol": {"hutch, hutch.token.tok"}}, "tok"},
		{"subprotocol twice", "/x", header{"Sec-Websocket-Protocol": {"hutch.token.tok", "hutch.token.tok"}}, ""},
		{"other subprotocols", "/x", header{"Sec-Websocket-Protocol": {"hutch, tok, token.tok"}}, ""},
		{"header before subprotocol", "/x", header{"Authorization": {"Bearer tok"}, "Sec-Websocket-Protocol": {"hutch.token.other"}}, "tok"},
		{"query of MCP", "/mcp?access_token=tok", nil, ""},
	} {
		r := httptest.NewRequest(http.MethodGet, c.url, nil)
		r.Header = http.Header(c.header)
		if got := Of(r); got != c.want {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
}

func TestHide(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"/x?a=b&access_token=tok&c=%20d": "/x?a=b&c=%20d",
		"/x?access%5ftoken=tok":          "/x",
		"/x?a=access_token":              "/x?a=access_token",
		"/x?token=app":                   "/x?token=app",
		"/jupyter/api?token=tok&a=b":     "/jupyter/api?a=b",
	} {
		r := httptest.NewRequest(http.MethodGet, given, nil)
		if Hide(r); r.URL.String() != want || r.RequestURI != want {
			t.Errorf("%s became %s and %s, not %s", given, r.URL, r.RequestURI, want)
		}
	}
}

func TestStrip(t *testing.T) {
	t.Parallel()
	known := func(token string) bool { return token == "tok" }
	r := httptest.NewRequest(http.MethodGet, "/x?a=b&access_token=t%6fk&access_token=other;c&token=tok&&token=other&tok=tok", nil)
	r.Header = http.Header{
		"Authorization": {basic("u:tok"), "Bearer other"}, "X-Api-Key": {" tok "}, "X-Other": {"tok"},
		"Sec-Websocket-Protocol": {"hutch.token.tok", "chat, hutch.token.tok,hutch.token.other"},
	}
	Strip(r, known)
	want := http.Header{"Authorization": {"Bearer other"}, "X-Api-Key": {}, "X-Other": {"tok"}, "Sec-Websocket-Protocol": {"chat,hutch.token.other"}}
	if r.URL.RawQuery != "a=b&access_token=other;c&&token=other&tok=tok" || !reflect.DeepEqual(r.Header, want) {
		t.Errorf("%s %v", r.URL, r.Header)
	}
	r = httptest.NewRequest(http.MethodGet, "/x", nil)
	if Strip(r, known); r.URL.String() != "/x" || len(r.Header) != 0 {
		t.Errorf("%s %v", r.URL, r.Header)
	}
}

// encoded is a token in the form that Decoded reads.
func encoded(token string) string { return hexPrefix + hex.EncodeToString([]byte(token)) }

func TestDecoded(t *testing.T) {
	t.Parallel()
	if got, ok := Decoded(encoded("hutch_abc")); got != "hutch_abc" || !ok {
		t.Errorf("%q, %v", got, ok)
	}
	for _, plain := range []string{"", "e2b_", "e2b_x", "e2b_abc", "hutch_00"} {
		if got, ok := Decoded(plain); ok {
			t.Errorf("%q is the form of %q", plain, got)
		}
	}
}

// Whatever a stranger sends, no token is longer than what was sent, and after Hide the query holds none.
func FuzzOf(f *testing.F) {
	f.Add("Bearer tok", "tok", "access_token=tok&a=b")
	f.Add(basic("u:p"), "", "access%5ftoken=%zz")
	f.Add("Basic", "e2b_00", "&&=&access_token")
	f.Fuzz(func(t *testing.T, authorization, key, query string) {
		r := httptest.NewRequest(http.MethodGet, "/x", nil)
		r.URL.RawQuery = query
		r.Header = http.Header{"Authorization": {authorization}, "X-Api-Key": {key}}
		token := Of(r)
		if len(token) > len(authorization)+len(key)+len(query) {
			t.Errorf("%q from %q, %q and %q", token, authorization, key, query)
		}
		if plain, ok := Decoded(token); ok && strings.ToLower(token) != encoded(plain) && strings.HasPrefix(token, "e2b_") {
			t.Errorf("%q is not the form of %q", token, plain)
		}
		Hide(r)
		if r.URL.Query().Has(parameter) {
			t.Errorf("%q still holds a token after Hide", r.URL.RawQuery)
		}
	})
}
