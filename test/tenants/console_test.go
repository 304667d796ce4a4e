package tenants

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"hutch"
	"hutch/client"
	"hutch/internal/audit"
	"hutch/internal/daemon"
	"hutch/internal/datadir"
	"hutch/internal/driver"
	"hutch/internal/driver/fake"
)

// console is a whole server whose console browsers use.
type console struct {
	url  string
	root *client.Client
}

func openConsole(t *testing.T) *console {
	t.Helper()
	data, err := datadir.Open(t.TempDir())
	must(t, err)
	d, err := daemon.Open(t.Context(), daemon.Config{
		Data: data, Listen: "127.0.0.1:0", E2B: "e2b.localhost", Log: daemon.Log{To: t.Output(), Level: slog.LevelWarn}, Origins: []string{"https://friend.example"},
		Sandboxes: daemon.Sandboxes{
			Drivers: func(string, *slog.Logger) ([]driver.Driver, error) {
				return []driver.Driver{fake.New(t.TempDir())}, nil
			},
			ColdCompilers: true, DestroyAll: true,
		},
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-served, d.Close()); err != nil {
			t.Error(err)
		}
	})
	token, _ := d.Token()
	return &console{d.URL(), client.New(d.URL(), token)}
}

// browser is a person's browser with the console open.
type browser struct {
	*console
	token        string
	cookie, csrf string
}

func (c *console) browser(t *testing.T, name string) *browser {
	t.Helper()
	m, err := c.root.CreateToken(t.Context(), hutch.TokenRequest{Name: name})
	must(t, err)
	b := &browser{console: c, token: m.Secret}
	a := b.page(t, "POST", "/console/session", `{"token":"`+m.Secret+`"}`)
	var s struct{ CSRF string }
	if json.Unmarshal([]byte(a.body), &s); a.status != 200 || s.CSRF == "" {
		t.Fatalf("%s signs in: %d %s", name, a.status, a.body)
	}
	b.cookie, _, _ = strings.Cut(a.header.Get("Set-Cookie"), ";")
	b.csrf = s.CSRF
	return b
}

// page sends a request as the console's script does; further headers replace its own, and "" removes them.
func (b *browser) page(t *testing.T, method, path, body string, header ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, b.url+path, strings.NewReader(body))
	must(t, err)
	all := append([]string{"Cookie", b.cookie, "X-Hutch-CSRF", b.csrf, "Sec-Fetch-Site", "same-origin", "Origin", b.url, "Content-Type", "application/json", "Accept", "application/json"}, header...)
	for i := 0; i < len(all); i += 2 {
		switch {
		case all[i] == "Host":
			r.Host = all[i+1]
		case all[i+1] == "":
			r.Header.Del(all[i])
		default:
			r.Header.Set(all[i], all[i+1])
		}
	}
	resp, err := http.DefaultClient.Do(r)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// TestConsole: over the console, eve can do what her token allows, and cannot reach anything of ada's.
func TestConsole(t *testing.T) {
	t.Parallel()
	c := openConsole(t)
	ada, eve := c.browser(t, "ada"), c.browser(t, "eve")
	if a := ada.page(t, "POST", "/v1/sandboxes", `{"sandboxId":"crate"}`); a.status != 200 {
		t.Fatalf("ada creates: %d %s", a.status, a.body)
	}
	if a := ada.page(t, "PUT", "/v1/sandboxes/crate/files/content?path=page.js", "alert(1)", "Content-Type", "application/octet-stream"); a.status >= 300 {
		t.Fatalf("ada writes: %d %s", a.status, a.body)
	}
	for _, path := range []string{"/v1/sandboxes/crate", "/v1/sandboxes/crate/files/content?path=page.js", "/v1/sandboxes/crate/processes"} {
		hers, none := eve.page(t, "GET", path, ""), eve.page(t, "GET", strings.Replace(path, "crate", "other", 1), "")
		if hers.status != 404 || hers.status != none.status || strings.ReplaceAll(hers.body, "crate", "other") != none.body {
			t.Errorf("%s: %d %s; of a sandbox that never was: %d %s", path, hers.status, hers.body, none.status, none.body)
		}
	}
	if a := eve.page(t, "GET", "/v1/sandboxes", ""); a.status != 200 || strings.Contains(a.body, "crate") {
		t.Errorf("eve's list: %d %s", a.status, a.body)
	}
	if a := eve.page(t, "GET", "/v1/tokens", ""); a.status != 403 {
		t.Errorf("eve asks for the tokens: %d %s", a.status, a.body)
	}
	if a := eve.page(t, "GET", "/v1/sandboxes", "", "X-Hutch-CSRF", ada.csrf); a.status != 403 {
		t.Errorf("eve's cookie with ada's value: %d %s", a.status, a.body)
	}
	// A file of the sandbox cannot be a script of the console, although it comes from the same origin.
	if a := ada.page(t, "GET", "/v1/sandboxes/crate/files/content?path=page.js", "", "Sec-Fetch-Dest", "script", "X-Hutch-CSRF", "", "Origin", ""); a.status != 403 || strings.Contains(a.body, "alert") {
		t.Errorf("a file as a script: %d %s", a.status, a.body)
	}
	a := ada.page(t, "GET", "/v1/sandboxes/crate/files/content?path=page.js", "", "Sec-Fetch-Dest", "document", "X-Hutch-CSRF", "", "Origin", "")
	if a.status != 200 || a.header.Get("Content-Disposition") != "attachment" || !strings.Contains(a.header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("a file as a page: %d %v", a.status, a.header)
	}
}

// TestPagesWithTheCookie sends requests that pages can make ada's browser send: pages of programs in sandboxes, and
// pages of other sites.
func TestPagesWithTheCookie(t *testing.T) {
	t.Parallel()
	c := openConsole(t)
	ada := c.browser(t, "ada")
	_, port, _ := strings.Cut(strings.TrimPrefix(c.url, "http://"), ":")
	for name, header := range map[string][]string{
		"a preview":                      {"Sec-Fetch-Site", "same-site", "Origin", "http://8000-box-x.localhost:" + port},
		"a preview, old browser":         {"Sec-Fetch-Site", "", "Origin", "http://8000-box-x.localhost:" + port},
		"a preview's image":              {"Sec-Fetch-Site", "same-site", "Origin", "", "Sec-Fetch-Dest", "image"},
		"a preview by path":              {"Sec-Fetch-Site", "cross-site", "Origin", "null"},
		"a preview by path, old browser": {"Sec-Fetch-Site", "", "Origin", "null"},
		"its image, old browser":         {"Sec-Fetch-Site", "", "Origin", ""},
		"a page that may call":           {"Sec-Fetch-Site", "cross-site", "Origin", "https://friend.example"},
	} {
		header = append(header, "X-Hutch-CSRF", "")
		for _, path := range []string{"/v1/sandboxes", "/console/session"} {
			a := ada.page(t, "GET", path, "", header...)
			if path == "/console/session" && name == "its image, old browser" {
				continue // no page can read this answer
			}
			if a.status != 403 || a.header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s reads %s: %d %s", name, path, a.status, a.body)
			}
		}
		if a := ada.page(t, "POST", "/v1/sandboxes", `{"sandboxId":"forged"}`, header...); a.status != 403 {
			t.Errorf("%s creates: %d %s", name, a.status, a.body)
		}
	}
	if a := ada.page(t, "GET", "/v1/sandboxes", ""); strings.Contains(a.body, "forged") {
		t.Error(a.body)
	}
}

// TestCookieOpensOnlyTheAPI: the APIs for programs accept tokens, and no cookie.
func TestCookieOpensOnlyTheAPI(t *testing.T) {
	t.Parallel()
	c := openConsole(t)
	ada := c.browser(t, "ada")
	_, port, _ := strings.Cut(strings.TrimPrefix(c.url, "http://"), ":")
	for _, path := range []string{"/mcp", "/mcp/events", "/metrics", "/e2b/sandboxes", "/v1/sandbox", "/v1/pool/stats", "/bridge/v1/sandbox", "/swerex/box/is_alive", "/piston/api/v2/runtimes", "/judge0/languages", "/jupyter/api/kernels", "/dify/v1/sandbox/run", "/openterminal/files/list", "/nothing"} {
		for _, method := range []string{"GET", "POST"} {
			if a := ada.page(t, method, path, "{}"); a.status != 401 {
				t.Errorf("%s %s: %d %.200s", method, path, a.status, a.body)
			}
		}
	}
	// E2B's host names have paths like those of the console, but do not serve its pages.
	for _, header := range [][]string{{"Host", "api.e2b.localhost:" + port}, {"Host", "api.e2b.localhost:" + port, "Accept", "text/html", "X-Hutch-CSRF", "", "Cookie", ""}} {
		header = append(header, "Origin", "")
		for _, path := range []string{"/sandboxes", "/v2/sandboxes", "/", "/v1/sandboxes", "/console/session", "/assets/x"} {
			if a := ada.page(t, "GET", path, "", header...); a.status != 401 {
				t.Errorf("%v %s: %d %.200s", header, path, a.status, a.body)
			}
		}
	}
	for _, path := range []string{"/v1/sandboxes", "/agents", "/conversations"} {
		if a := ada.page(t, "GET", path, ""); a.status != 200 && a.status != 405 {
			t.Errorf("%s: %d %.200s", path, a.status, a.body)
		}
	}
	if a := ada.page(t, "POST", "/execute", `{"language":"bash","code":"echo 42"}`); a.status != 200 || !strings.Contains(a.body, "42") {
		t.Errorf("a question: %d %s", a.status, a.body)
	}
}

// TestSessionsAreOnRecord: the audit log has who signed in and out, and which calls were made in a session, but no
// secret.
func TestSessionsAreOnRecord(t *testing.T) {
	t.Parallel()
	c := openConsole(t)
	ada := c.browser(t, "ada")
	ada.page(t, "POST", "/console/session", `{"token":"wrong-token"}`)
	ada.page(t, "GET", "/v1/sandboxes", "")
	if a := ada.page(t, "DELETE", "/console/session", ""); a.status != 204 {
		t.Fatalf("sign out: %d %s", a.status, a.body)
	}
	seen := map[string]int{}
	err := c.root.Audit(t.Context(), client.AuditQuery{}, false, func(r client.AuditRecord) error {
		if r.Phase == audit.End {
			seen[strings.Join([]string{r.Verb, r.Result, r.TokenName, r.Surface}, " ")]++
		}
		line, _ := json.Marshal(r)
		_, value, _ := strings.Cut(ada.cookie, "=")
		for _, secret := range []string{ada.token, value, ada.csrf, "wrong-token"} {
			if strings.Contains(string(line), secret) {
				t.Errorf("a secret is on record: %s", line)
			}
		}
		return nil
	})
	if err != nil || seen["SignIn ok ada console"] != 1 || seen["SignIn denied  console"] != 1 || seen["Sandboxes ok ada console"] != 1 || seen["SignOut ok ada console"] != 1 {
		t.Errorf("%v, %v", seen, err)
	}
}

// TestRevokedInTheBrowser: the session of a revoked token ends at once.
func TestRevokedInTheBrowser(t *testing.T) {
	t.Parallel()
	c := openConsole(t)
	ada := c.browser(t, "ada")
	_, err := c.root.RevokeToken(t.Context(), "ada")
	must(t, err)
	for _, path := range []string{"/v1/sandboxes", "/console/session"} {
		if a := ada.page(t, "GET", path, ""); a.status != 401 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// TestSignInsCount: signing in is a request of the token, so its limit bounds what sign-ins write.
func TestSignInsCount(t *testing.T) {
	t.Parallel()
	c := openConsole(t)
	m, err := c.root.CreateToken(t.Context(), hutch.TokenRequest{Name: "eve", Limits: hutch.TokenLimits{Requests: 2}})
	must(t, err)
	b := &browser{console: c}
	for i, want := range []int{200, 200, 429} {
		a := b.page(t, "POST", "/console/session", `{"token":"`+m.Secret+`"}`)
		if a.status != want || (a.header.Get("Set-Cookie") != "") != (want == 200) {
			t.Errorf("sign-in %d: %d %v %s", i+1, a.status, a.header, a.body)
		}
	}
}
