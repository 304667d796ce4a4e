package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/httpio"
	"hutch/internal/problem"
)

// Handler serves MCP over streamable HTTP at any path. Package guard must be in front of it: it authorizes, and checks
// Host and Origin.
type Handler struct {
	*server
	older, modern, bare http.Handler
}

// NewHandler returns an MCP handler for svc. Close ends it.
func NewHandler(svc hutch.Service, opt Options) *Handler {
	s := newServer(svc, opt)
	same := func(*http.Request) *sdk.Server { return s.sdk }
	return &Handler{
		server: s,
		older: sdk.NewStreamableHTTPHandler(same, &sdk.StreamableHTTPOptions{
			SessionTimeout:             s.opt.SessionTimeout,
			EventStore:                 newReplay(),
			MaxRequestBodyBytes:        s.opt.MaxBody,
			DisableLocalhostProtection: true, // package guard has a stricter check, which knows the server's names
		}),
		modern: sdk.NewStreamableHTTPHandler(same, &sdk.StreamableHTTPOptions{
			Stateless: true,
			// Without this, a command would keep running after its client has hung up.
			PropagateRequestCancellation: true,
			MaxRequestBodyBytes:          s.opt.MaxBody,
			DisableLocalhostProtection:   true,
		}),
		bare: sdk.NewStreamableHTTPHandler(same, &sdk.StreamableHTTPOptions{
			Stateless: true, JSONResponse: true, MaxRequestBodyBytes: s.opt.MaxBody, DisableLocalhostProtection: true,
		}),
	}
}

// Close ends all sessions, kills the programs of their calls, and destroys the sandboxes that were created for them. It
// returns when that is done or when ctx is done.
func (h *Handler) Close(ctx context.Context) error { return h.close(ctx) }

const (
	headerVersion = "Mcp-Protocol-Version"
	headerSession = "Mcp-Session-Id"
)

var errManyValues = hutch.Errorf(hutch.Exhausted, "the lists in the message take more memory than there is for the requests of this token: send fewer values at a time").
	With("limit", "memory of requests")

// ServeHTTP answers one request by the rules of its era.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r, h.opt.MaxBody)
	if err != nil {
		refuse(w, err)
		return
	}
	if len(body) > 0 && !json.Valid(body) { // from several values, the SDK would use only the first
		writeError(w, http.StatusBadRequest, nil, codeParse, "the body is not one JSON value")
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if !caller.From(r.Context()).Budget.TakeJSON(body) {
		Refuse(w, r, errManyValues)
		return
	}
	who := caller.From(r.Context()).Principal
	a := &answer{ResponseWriter: httpio.NewWriter(w, r, writeLimit), ctx: r.Context(), body: body, mayAsk: who != nil && who.Metadata != "", done: make(chan struct{})}
	defer h.answers.open(r, a)()
	if h.serveBare(a, r) {
		return
	}
	isModern := r.Header.Get(headerVersion) >= modern
	if isModern && h.servePlain(a, r) {
		return
	}
	if h.refuseEnvelope(a, isModern) {
		return
	}
	if isModern {
		h.modern.ServeHTTP(a, r)
		return
	}
	if r.Method == http.MethodDelete {
		h.sessions.interrupt(r.Header.Get(headerSession), who)
	}
	r = a.expectTakeover(r, who)
	defer a.hangUp()
	h.takeOver(a, r)
	if who != nil {
		ofOne(h.older).ServeHTTP(a, r)
		return
	}
	h.older.ServeHTTP(a, r)
}

// ofOne gives the SDK the caller of a request, so that a session can be used only by the caller that began it.
var ofOne = sdkauth.RequireBearerToken(func(ctx context.Context, _ string, _ *http.Request) (*sdkauth.TokenInfo, error) {
	return &sdkauth.TokenInfo{UserID: caller.From(ctx).Principal.ID}, nil
}, &sdkauth.RequireBearerTokenOptions{AllowMissingExpiration: true})

// Refuse answers a request that is not allowed now, for example because of a limit. A tool call of an MCP client gets
// status 200 and a tool's answer, which the client shows to its model: such clients mistake any other status for a
// broken connection. All other requests, including those without a handshake, get the status with the same JSON-RPC
// error.
func Refuse(w http.ResponseWriter, r *http.Request, err error) {
	var msg struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if body, err := readBody(w, r, maxRefused); err == nil {
		json.Unmarshal(body, &msg) // fields that do not parse stay empty
	}
	e := hutch.AsError(err)
	f := failure{Code: codeOf(e), Message: e.Message, Data: maps.Clone(e.Data)}
	if f.Data == nil {
		f.Data = map[string]any{}
	}
	f.Data["kind"] = e.Kind
	status := problem.Status(e.Kind)
	if msg.Method == "tools/call" && !isBare(r) {
		status = http.StatusOK
	}
	if after, ok := e.RetryAfter(); ok {
		w.Header().Set("Retry-After", strconv.Itoa(after))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(f.message(msg.ID, status == http.StatusOK && r.Header.Get(headerVersion) >= modern))
}

// maxRefused is the longest message that is read only to find the id of the refusal.
const maxRefused = 1 << 20

// message encodes f as the answer to the message with an id.
func (f failure) message(id json.RawMessage, modern bool) []byte {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	m := map[string]any{"jsonrpc": "2.0", "id": id}
	result, err := f.render(modern)
	if err == nil {
		m["result"] = map[string]any{
			"resultType": "complete", "isError": true, "structuredContent": result.StructuredContent,
			"content": []any{map[string]any{"type": "text", "text": f.Message}},
		}
	} else {
		m["error"] = err
	}
	return mustJSON(m)
}

// bodyTime is how long a message can take to arrive.
const bodyTime = time.Minute

func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	var b bytes.Buffer
	if r.ContentLength > 0 {
		b.Grow(int(min(r.ContentLength+bytes.MinRead, limit)))
	}
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(bodyTime)) // not all writers have deadlines
	_, err := b.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	if err == nil && r.Context().Err() == nil { // as httpio.ReadAll
		rc.SetReadDeadline(time.Time{})
	}
	return b.Bytes(), err
}

// refuse answers a message that could not be read.
func refuse(w http.ResponseWriter, err error) {
	if tooBig, ok := errors.AsType[*http.MaxBytesError](err); ok {
		writeError(w, http.StatusRequestEntityTooLarge, nil, codeInvalidRequest,
			fmt.Sprintf("the message has more than %d bytes, which is the limit: put large data into the sandbox in parts", tooBig.Limit))
		return
	}
	writeError(w, http.StatusBadRequest, nil, codeInvalidRequest, "the request broke off before its body was complete")
}

// methods are the methods that clients of the older revisions can call.
var methods = []string{
	"initialize", "ping", "tools/list", "tools/call", "prompts/list", "prompts/get", "completion/complete", "logging/setLevel",
	"resources/list", "resources/read", "resources/templates/list", "resources/subscribe", "resources/unsubscribe",
}

// refuseMessage answers a message that the SDK refused with a JSON-RPC error that says why. For an unknown method, that
// is the usual error.
func refuseMessage(w http.ResponseWriter, body []byte, why string) {
	msg, _ := jsonrpc.DecodeMessage(body)
	req, ok := msg.(*jsonrpc.Request)
	switch {
	case !ok || !req.IsCall():
		writeError(w, http.StatusBadRequest, nil, codeInvalidRequest, why)
	case slices.Contains(methods, req.Method):
		writeError(w, http.StatusBadRequest, req.ID.Raw(), codeInvalidRequest, why)
	default:
		writeError(w, http.StatusOK, req.ID.Raw(), jsonrpc.CodeMethodNotFound, why)
	}
}

// writeError answers with a JSON-RPC error to the message with an id; id is nil if it is unknown.
func writeError(w http.ResponseWriter, status int, id any, code int64, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Del("Content-Length")
	w.WriteHeader(status)
	w.Write(errorMessage(id, code, message))
}

func errorMessage(id any, code int64, message string) []byte {
	return mustJSON(struct {
		JSONRPC string         `json:"jsonrpc"`
		ID      any            `json:"id"` // null if the id is unknown, as JSON-RPC requires
		Error   *jsonrpc.Error `json:"error"`
	}{"2.0", id, &jsonrpc.Error{Code: code, Message: message}})
}
