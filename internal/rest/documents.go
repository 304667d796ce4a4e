package rest

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"

	"hutch/api"
)

// documentRoutes are the routes of what describes the others. They need no
// token: a browser has none to show, and they tell nothing of this server.
func (h *Handler) documentRoutes() {
	h.route("/v1/openapi.yaml", methods{"GET": document("application/yaml", func() []byte { return api.YAML })})
	h.route("/v1/openapi.json", methods{"GET": document("application/json", api.JSON)})
	h.route("/v1/docs", methods{"GET": document("text/html; charset=utf-8", api.Page)})
}

func document(contentType string, content func() []byte) func(http.ResponseWriter, *http.Request) {
	sum := sha256.Sum256([]byte(api.Style()))
	policy := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache")
		w.Write(content()) // an error here is a client that has gone
	}
}
