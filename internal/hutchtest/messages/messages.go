// Package messages is a server for tests that speaks Anthropic's Messages API: plain and streamed answers, tool use,
// token counts, and the ways in which the real service fails.
//
// A test passes one function, which gets each decoded request and returns the answer. The server checks what the real
// service checks (headers, roles, tool results that belong to a tool use), so that a client that works here also works
// there. It records every request with its headers.
//
//	srv := messages.Start(t, func(r messages.Request) messages.Answer {
//		if r.Number > 1 {
//			return messages.Text("done")
//		}
//		return messages.Answer{Blocks: []messages.Block{messages.ToolUse("toolu_1", "bash", map[string]any{"command": "ls"})}}
//	})
//	client := anthropic.NewClient(option.WithBaseURL(srv.URL), option.WithAPIKey(messages.Key))
package messages

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Key is the API key that a [Server] accepts unless its field Key says otherwise.
const Key = "sk-ant-test-0123456789abcdef"

// Model is a name that requests can use; the server accepts every name.
const Model = "claude-test-1"

// maxRequest is the longest request that the real service accepts, in bytes.
const maxRequest = 32 << 20

// Server answers requests of the Messages API.
type Server struct {
	URL string // URL of a server made by [Start]; the base URL for clients
	Key string // the accepted key, as x-api-key or bearer token; if it is empty, any key and no key are accepted

	answer func(Request) Answer
	mu     sync.Mutex
	all    []Request
}

// New returns a server that is not listening: it is used as a http.Handler.
func New(answer func(Request) Answer) *Server { return &Server{Key: Key, answer: answer} }

// Start returns a server on a separate loopback address, which ends with the test. If answer is nil, the server answers
// "ok".
func Start(t testing.TB, answer func(Request) Answer) *Server {
	t.Helper()
	s := New(answer)
	hs := httptest.NewServer(s)
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
	})
	s.URL = hs.URL
	return s
}

// Requests returns the requests so far, oldest first: requests for messages, including refused ones.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// Last returns the newest request; the zero value if there were none.
func (s *Server) Last() Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return Request{}
	}
	return s.all[len(s.all)-1]
}

// record keeps a request, and gives it its number.
func (s *Server) record(r *Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Number = len(s.all) + 1
	s.all = append(s.all, *r)
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req := Request{Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone()}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	req.Raw = body
	refusal := s.check(&req, err)
	s.record(&req)
	w.Header().Set("request-id", fmt.Sprintf("req_test_%d", req.Number))
	switch {
	case refusal != nil:
		refusal.fail(w)
	case req.Path == "/v1/messages/count_tokens":
		reply(w, http.StatusOK, map[string]int{"input_tokens": tokens(string(body))})
	default:
		answer := Text("ok")
		if s.answer != nil {
			answer = s.answer(req)
		}
		answer.write(w, r, req)
	}
}

// check decodes a request. It returns the error with which the real service would refuse the request, or nil.
func (s *Server) check(r *Request, read error) *Answer {
	switch {
	case read != nil:
		return refuse(http.StatusRequestEntityTooLarge, "request_too_large", "Request exceeds the maximum size")
	case r.Path != "/v1/messages" && r.Path != "/v1/messages/count_tokens":
		return refuse(http.StatusNotFound, "not_found_error", "Not found")
	case r.Method != http.MethodPost:
		return refuse(http.StatusMethodNotAllowed, "invalid_request_error", "Method Not Allowed")
	case s.Key != "" && r.Key() == "":
		return refuse(http.StatusUnauthorized, "authentication_error", "x-api-key header is required")
	case s.Key != "" && r.Key() != s.Key:
		return refuse(http.StatusUnauthorized, "authentication_error", "invalid x-api-key")
	case r.Header.Get("anthropic-version") == "":
		return refuse(http.StatusBadRequest, "invalid_request_error", "anthropic-version: header is required")
	}
	if err := json.Unmarshal(r.Raw, r); err != nil {
		return refuse(http.StatusBadRequest, "invalid_request_error", "The request body is not valid JSON: "+err.Error())
	}
	if message := r.invalid(); message != "" {
		return refuse(http.StatusBadRequest, "invalid_request_error", message)
	}
	return nil
}

func refuse(status int, kind, message string) *Answer {
	a := Fail(status, kind, message)
	return &a
}

// Fail returns an answer that is an error of the API. Known kinds: 400 invalid_request_error, 401 authentication_error,
// 403 permission_error, 404 not_found_error, 429 rate_limit_error, 500 api_error, 529 overloaded_error.
func Fail(status int, kind, message string) Answer {
	return Answer{Status: status, ErrorType: kind, ErrorMessage: message}
}

// Unauthorized returns the error for a wrong key. It is one of the most common errors, as are RateLimited and
// Overloaded.
func Unauthorized() Answer { return Fail(401, "authentication_error", "invalid x-api-key") }

// RateLimited returns the error for too many requests, with the seconds until a client can try again.
func RateLimited(retryAfter int) Answer {
	a := Fail(429, "rate_limit_error", "This request would exceed your organization's rate limit")
	a.RetryAfter = retryAfter
	return a
}

func Overloaded() Answer { return Fail(529, "overloaded_error", "Overloaded") }

func (a Answer) fail(w http.ResponseWriter) {
	if a.RetryAfter > 0 {
		w.Header().Set("retry-after", strconv.Itoa(a.RetryAfter))
	}
	reply(w, a.Status, a.failure(w.Header().Get("request-id")))
}

// failure returns an error in the API's format, as a whole body or as an event of a stream.
func (a Answer) failure(request string) map[string]any {
	return map[string]any{
		"type": "error", "error": map[string]string{"type": a.ErrorType, "message": a.ErrorMessage}, "request_id": request,
	}
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// tokens estimates how many tokens a text has.
func tokens(text string) int { return max(1, (len(text)+3)/4) }

// bearer returns the token of an Authorization header.
func bearer(h http.Header) string {
	token, _ := strings.CutPrefix(h.Get("Authorization"), "Bearer ")
	return token
}
