package rest

import (
	"net/http"

	"hutch/api"
	"hutch/internal/httpio"
)

func document(contentType string, content func() []byte) func(http.ResponseWriter, *http.Request) {
	policy := httpio.StylePolicy(api.Style())
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache")
		w.Write(content()) // an error means that the client has disconnected
	}
}
