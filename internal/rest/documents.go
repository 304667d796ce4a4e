package rest

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"

	"hutch/api"
)

func document(contentType string, content func() []byte) func(http.ResponseWriter, *http.Request) {
	sum := sha256.Sum256([]byte(api.Style()))
	policy := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache")
		w.Write(content()) // an error means that the client has disconnected
	}
}
