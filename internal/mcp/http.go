package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
)

// Handler serves MCP over streamable HTTP at whatever path it is mounted. It
// relies on what stands in front of it (package guard) for authorization and
// for the checks of Host and Origin.
type Handler struct {
	*server
	older, modern http.Handler
}

// NewHandler returns a handler of MCP for svc. Close ends it.
func NewHandler(svc hutch.Service, opt Options) *Handler {
	s := newServer(svc, opt)
	same := func(*http.Request) *sdk.Server { return s.sdk }
	return &Handler{
		server: s,
		older: sdk.NewStreamableHTTPHandler(same, &sdk.StreamableHTTPOptions{
			SessionTimeout:             s.opt.SessionTimeout,
			MaxRequestBodyBytes:        s.opt.MaxBody,
			DisableLocalhostProtection: true, // guard's is stricter, and knows which names are ours
		}),
		modern: sdk.NewStreamableHTTPHandler(same, &sdk.StreamableHTTPOptions{
			Stateless: true,
			// Or a client that hung up would leave its command running.
			PropagateRequestCancellation: true,
			MaxRequestBodyBytes:          s.opt.MaxBody,
			DisableLocalhostProtection:   true,
		}),
	}
}

// Close ends all sessions, kills what their calls run, and destroys the
// sandboxes made for them. It returns when that is done, or ctx is.
func (h *Handler) Close(ctx context.Context) error { return h.close(ctx) }

const (
	headerVersion = "Mcp-Protocol-Version"
	headerSession = "Mcp-Session-Id"
)

// ServeHTTP answers one request, by the rules of its era.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r, h.opt.MaxBody)
	if err != nil {
		refuse(w, err)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	a := &answer{ResponseWriter: w, body: body}
	defer h.answers.open(r, a)()
	if r.Header.Get(headerVersion) >= modern {
		h.modern.ServeHTTP(a, r)
		return
	}
	if r.Method == http.MethodDelete {
		h.sessions.interrupt(r.Header.Get(headerSession))
	}
	h.older.ServeHTTP(a, r)
}

func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	var b bytes.Buffer
	if r.ContentLength > 0 {
		b.Grow(int(min(r.ContentLength+bytes.MinRead, limit)))
	}
	_, err := b.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	return b.Bytes(), err
}

// refuse answers a message that could not be read.
func refuse(w http.ResponseWriter, err error) {
	if tooBig, ok := errors.AsType[*http.MaxBytesError](err); ok {
		writeError(w, http.StatusRequestEntityTooLarge, codeInvalidRequest,
			fmt.Sprintf("the message has more than %d bytes, which is the limit: put large data into the sandbox in parts", tooBig.Limit))
		return
	}
	writeError(w, http.StatusBadRequest, codeInvalidRequest, "the request broke off before its body was complete")
}

// writeError answers with a JSON-RPC error to a message whose id is not known.
func writeError(w http.ResponseWriter, status int, code int64, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Del("Content-Length")
	w.WriteHeader(status)
	w.Write(errorMessage(code, message))
}

func errorMessage(code int64, message string) []byte {
	return mustJSON(struct {
		JSONRPC string         `json:"jsonrpc"`
		ID      *int           `json:"id"` // null, as JSON-RPC has it
		Error   *jsonrpc.Error `json:"error"`
	}{"2.0", nil, &jsonrpc.Error{Code: code, Message: message}})
}
