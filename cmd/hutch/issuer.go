package main

import (
	"net/http"
	"strings"

	"hutch/internal/auth"
	"hutch/internal/conversation"
)

// openIssuer is who vouches for people, nil if nobody does.
func (s *server) openIssuer() (err error) {
	if s.serveConfig.issuer != (auth.IssuerOptions{}) {
		s.people, err = auth.NewIssuer(s.serveConfig.issuer)
	}
	return err
}

// issuerRoutes tell MCP clients who that is: RFC 9728.
func (s *server) issuerRoutes(mux *http.ServeMux) (metadata string) {
	if s.people == nil {
		return ""
	}
	tell := func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, http.StatusOK, s.people.Metadata()) }
	mux.HandleFunc("GET "+auth.MetadataPath, tell)
	mux.HandleFunc("GET "+auth.MetadataPath+"/mcp", tell)
	return s.people.MetadataURL()
}

// isOpen reports whether anyone may make a request.
func isOpen(r *http.Request) bool {
	return conversation.Open(r) || r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, auth.MetadataPath)
}
