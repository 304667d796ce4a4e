package preview

import (
	"fmt"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/hutchtest/browser"
)

// stage returns a daemon with two sandboxes. A browser looks at their previews.
func stage(t *testing.T) (b *bed, one, two hutch.Port) {
	b = open(t, "native", nil)
	ports := map[string]*hutch.Port{"one": &one, "two": &two}
	for name, p := range ports {
		id := b.box(t, hutch.CreateRequest{ID: name})
		b.serve(t, id, "server.py", "exec python3 server.py 8000 "+name, 8000)
		*p = b.expose(t, id, hutch.ExposeRequest{Port: 8000})
	}
	return b, one, two
}

// tried returns the result of an asynchronous attempt of a page.
func tried(p *browser.Page, js string) (got string) {
	p.Eval("(async () => { try { return String("+js+") } catch (e) { return 'failed: ' + e.name } })()", &got)
	return got
}

const socket = `await new Promise((done, fail) => {
	const ws = new WebSocket(%q)
	ws.onopen = () => ws.send('hello')
	ws.onmessage = e => done(e.data)
	ws.onerror = () => fail(new Error('refused'))
})`

// A real browser opens previews without set-up, and isolates them from each other and from the daemon.
func TestBrowser(t *testing.T) {
	b, one, two := stage(t)
	chromium := browser.Open(t)
	page := chromium.Page(one.URL + "/")
	if got := page.Text("document.querySelector('h1').textContent"); got != "Hello from one" {
		t.Errorf("the page says %q", got)
	}
	if got := tried(page, fmt.Sprintf(socket, strings.Replace(one.URL, "http", "ws", 1)+"/")); got != "echo hello" {
		t.Errorf("the WebSocket says %q", got)
	}
	page.Eval(`document.cookie = 'mine=1; path=/'; document.cookie = 'all=1; path=/; domain=localhost'; localStorage.setItem('mine', '1')`, nil)
	tried(page, `await fetch('/cookie')`)
	if got := page.Text("document.cookie"); !strings.Contains(got, "who=one") || !strings.Contains(got, "mine=1") {
		t.Errorf("its own cookies are %q", got)
	}
	api := "http://127.0.0.1:" + b.port
	for name, test := range map[string][2]string{
		"reads the daemon's API":     {`(await fetch("` + api + `/v1/sandboxes")).status`, "failed: TypeError"},
		"acts on the daemon's API":   {`(await fetch("` + api + `/v1/sandboxes", {method: 'POST', body: '{}', headers: {Authorization: 'Bearer x'}})).status`, "failed: TypeError"},
		"reads another preview":      {`(await fetch("` + two.URL + `/")).status`, "failed: TypeError"},
		"has a frame of another":     {`await new Promise(done => { const f = document.createElement('iframe'); f.onload = () => done(f.contentDocument === null ? 'apart' : 'open'); f.src = "` + two.URL + `/"; document.body.append(f) })`, "apart"},
		"joins another's origin":     {`(() => { document.domain = "localhost"; return document.domain })()`, "failed: SecurityError"},
		"shows the daemon in itself": {`(await fetch("` + api + `/preview/` + two.Label() + `/", {mode: 'cors'})).status`, "failed: TypeError"},
	} {
		if got := tried(page, test[0]); got != test[1] {
			t.Errorf("%s: %q, want %q", name, got, test[1])
		}
	}
	other := chromium.Page(two.URL + "/")
	if got := other.Text("document.cookie + localStorage.length"); got != "0" {
		t.Errorf("another preview sees %q", got)
	}
}

// In the path form, pages are on the daemon's host and have unique origins.
func TestBrowserPaths(t *testing.T) {
	b, one, _ := stage(t)
	chromium := browser.Open(t)
	page := chromium.Page("http://127.0.0.1:" + b.port + "/preview/" + one.Label() + "/")
	for name, test := range map[string][2]string{
		"says":             {"document.querySelector('h1').textContent", "Hello from one"},
		"origin":           {"self.origin", "null"},
		"cookies":          {"document.cookie", "failed: SecurityError"},
		"storage":          {"localStorage.length", "failed: SecurityError"},
		"service workers":  {"await navigator.serviceWorker.register('sw.js')", "failed"},
		"the daemon's API": {"(await fetch('/v1/sandboxes')).status", "failed: TypeError"},
		"its own server":   {"(await (await fetch('redirect')).text()).includes('Hello')", "true"},
	} {
		if got := tried(page, test[0]); !strings.HasPrefix(got, test[1]) {
			t.Errorf("%s: %q, want %q", name, got, test[1])
		}
	}
}

// People log in to a private preview on the daemon's own page.
func TestBrowserLogin(t *testing.T) {
	b, one, two := stage(t)
	b.expose(t, "two", hutch.ExposeRequest{Port: 8000, Access: hutch.PrivatePort})
	chromium := browser.Open(t)
	page := chromium.Page(two.URL + "/headers")
	if got := page.Text("document.title"); got != "This preview is private" {
		t.Fatalf("a private preview says %q", got)
	}
	page.Click("a")
	page.Wait("document.title === 'Log in to a preview'")
	page.Type("input[type=password]", "wrong")
	page.Click("button")
	page.Wait("document.body.innerText.includes('does not open')")
	page.Type("input[type=password]", ourToken)
	page.Click("button")
	page.Wait("location.href === " + fmt.Sprintf("%q", two.URL+"/headers"))
	if got := page.Text("document.body.innerText"); strings.Contains(got, "hutch-preview") || strings.Contains(got, ourToken) {
		t.Errorf("the program inside was told: %s", got)
	}
	if got := page.Text("document.cookie"); got != "" {
		t.Errorf("the page sees the cookie %q", got)
	}
	if got := tried(page, fmt.Sprintf(socket, strings.Replace(two.URL, "http", "ws", 1)+"/")); got != "echo hello" {
		t.Errorf("its own WebSocket says %q", got)
	}
	page.Navigate(one.URL + "/")
	if got := tried(page, fmt.Sprintf(socket, strings.Replace(two.URL, "http", "ws", 1)+"/")); !strings.HasPrefix(got, "failed") {
		t.Errorf("another preview's page speaks with it: %q", got)
	}
}

// A page waits for a server that does not answer yet, and then shows the server's page.
func TestBrowserWaits(t *testing.T) {
	b := open(t, "native", nil)
	id := b.box(t, hutch.CreateRequest{})
	p := b.expose(t, id, hutch.ExposeRequest{Port: 8000})
	page := browser.Open(t).Page(p.URL + "/")
	if got := page.Text("document.title"); got != "Nothing answers on port 8000 yet" {
		t.Errorf("without a server the page says %q", got)
	}
	b.serve(t, id, "server.py", "exec python3 server.py 8000 python", 8000)
	page.Wait("document.title === 'python'")
}
