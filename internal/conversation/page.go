package conversation

import (
	"bytes"
	_ "embed"
	"html"
	"net/http"
	"net/url"

	"hutch/internal/httpio"
)

// The page is one file: its policy allows only the content of its own style and script elements.
//
//go:embed page.html
var page []byte

// between returns the text between two marks of the page.
func between(from, to string) string {
	_, rest, _ := bytes.Cut(page, []byte(from))
	content, _, _ := bytes.Cut(rest, []byte(to))
	return string(content)
}

var pageSources = "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" +
	"; style-src " + httpio.InlineSource(between("<style>", "</style>")) + "; script-src " + httpio.InlineSource(between("<script>", "</script>"))

// pagePolicy allows images from the origin of links, which can differ from the page's.
func (s *Server) pagePolicy() string {
	images := "; img-src 'self'"
	if u, err := url.Parse(s.links.base); err == nil && u.Host != "" {
		images += " " + u.Scheme + "://" + u.Host
	}
	return pageSources + images
}

func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", s.pagePolicy())
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	w.Write(s.linked(page)) // an error means that the client has disconnected
}

// linked returns the page with a link to the API of the server, if there is one.
func (s *Server) linked(page []byte) []byte {
	link := ""
	if s.api != "" {
		link = `<p>This is a server of <b>Hutch</b>. Its whole API, with examples: <a href="` + html.EscapeString(s.api) + `">` + html.EscapeString(s.api) + `</a></p>`
	}
	return bytes.Replace(page, []byte("<!-- the API -->"), []byte(link), 1)
}
