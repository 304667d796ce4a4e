package console

import (
	"net/http"

	"hutch/internal/credential"
	"hutch/internal/httpio"
)

// IsLost reports whether a browser opens a path without a token. If the server does not have the path, [Handler.Lost]
// answers, because an error for programs would not say where the console is.
func IsLost(r *http.Request) bool {
	return isRead(r) && acceptsHTML(r) && credential.None(r)
}

// Lost returns a handler that answers requests for which lost is true with a page, and passes the others to next. The
// page has no scripts and repeats nothing of the request, so a link cannot make it say anything else.
func (h *Handler) Lost(next http.Handler, lost func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !lost(r) {
			next.ServeHTTP(w, r)
			return
		}
		w = httpio.NewWriter(w, r, h.opt.Stall)
		head := w.Header()
		harden(head)
		head.Set("Content-Security-Policy", lostPolicy)
		head.Set("Content-Type", "text/html; charset=utf-8")
		head.Set("Cache-Control", "no-store")
		head.Add("Vary", "Accept")
		w.WriteHeader(http.StatusNotFound)
		if r.Method != http.MethodHead {
			w.Write([]byte(lostPage)) // an error means that the client has disconnected
		}
	})
}

const (
	lostStyle = `:root{color-scheme:light dark;background:light-dark(#f7f7f9,#111116);color:light-dark(#1b1b22,#ececf2)}a{color:light-dark(#4a4dc9,#a3a5fb)}body{max-width:34rem;margin:15vh auto;padding:0 1.5rem;font:1rem/1.6 system-ui,sans-serif}h1{font-size:1.5rem}`
	lostPage  = `<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Not found · Hutch</title>
<style>` + lostStyle + `</style>
<main>
<h1>There is no such page</h1>
<p>This server is Hutch, and it has nothing at this address. The address can be mistyped, or it is of another version.</p>
<p><a href="/">Open the console</a></p>
<p>Programs use the <a href="/v1/docs">REST API</a> below <code>/v1</code>.</p>
</main>
</html>
`
)

var lostPolicy = httpio.StylePolicy(lostStyle)
