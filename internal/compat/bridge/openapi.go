package bridge

import (
	_ "embed"
	"net/http"
	"strings"
)

// schema describes the API, in our own words.
//
//go:embed openapi.json
var schema []byte

func (h *Handler) document(w http.ResponseWriter, r *http.Request) {
	h.send(w, r, http.StatusOK, schema)
}

// page shows the description as text: it loads nothing and runs nothing.
func (h *Handler) page(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	text := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(string(schema))
	h.writer(w, r).Write([]byte("<!doctype html><title>Sandbox bridge API</title><meta charset=utf-8><style>body{font:14px monospace;margin:2em}</style><h1>Sandbox bridge API</h1><pre>" + text + "</pre>\n"))
}
