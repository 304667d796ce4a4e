package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	strict "github.com/segmentio/encoding/json"
)

// bareRequest is JSON-RPC without a handshake, as clients of existing deployments send it. Its headers have neither a
// session nor a revision, and its method is not initialize. The answer is plain JSON without a session, whatever Accept
// and Content-Type say. Its errors are those of the older revisions.
type bareRequest struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

// bareParams are the parameters of a tool call.
type bareParams struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Meta      struct {
		Version string `json:"io.modelcontextprotocol/protocolVersion"`
		Trace   string `json:"traceparent"`
	} `json:"_meta"`
}

// isBare reports whether a request's headers show no handshake.
func isBare(r *http.Request) bool {
	return r.Method == http.MethodPost && r.Header.Get(headerSession) == "" && r.Header.Get(headerVersion) == ""
}

// serveBare answers a bare request. If r is not a bare request, it does nothing and returns false.
func (h *Handler) serveBare(a *answer, r *http.Request) bool {
	if !isBare(r) {
		return false
	}
	var req bareRequest
	_, err := strict.Parse(a.body, &req, strict.DontMatchCaseInsensitiveStructFields)
	var params bareParams
	_, badParams := strict.Parse(req.Params, &params, strict.DontMatchCaseInsensitiveStructFields)
	if err == nil && (req.Method == "initialize" || params.Meta.Version != "") {
		return false
	}
	a.silent = true // because a comment is not JSON
	switch why := req.refusal(a.body, err); {
	case why != "":
		writeError(a, http.StatusBadRequest, req.id(), codeInvalidRequest, why)
	case len(req.ID) == 0:
		a.WriteHeader(http.StatusAccepted)
	case req.Method == "tools/call" && badParams == nil && h.tools[params.Name] != nil:
		h.callBare(a, r, req.ID, params)
	default:
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		h.bare.ServeHTTP(a, r)
	}
	return true
}

// refusal returns why a request cannot be answered; "" if it can be.
func (req *bareRequest) refusal(body []byte, err error) string {
	switch {
	case len(body) == 0:
		return "the body is empty: send a JSON-RPC request"
	case bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")):
		return "a batch is not taken without a session: send one request at a time"
	case err != nil || req.Version != "2.0" || req.Method == "":
		return `this is not a JSON-RPC request: it needs "jsonrpc": "2.0", an id and a method`
	case len(req.ID) == 0 && !strings.HasPrefix(req.Method, "notifications/"):
		return "the request has no id, so its result could not be returned: give it one"
	case len(req.ID) > 0 && req.id() == nil:
		return "the id of a request must be a string or a whole number"
	}
	return ""
}

// id returns the request's id if it is valid in an answer, otherwise nil.
func (req *bareRequest) id() any {
	if len(req.ID) > 0 && req.ID[0] == '"' {
		return req.ID
	}
	if _, err := strconv.ParseInt(string(req.ID), 10, 64); err == nil {
		return req.ID
	}
	return nil
}

// callBare runs a tool of this server and answers with its result or error.
func (h *Handler) callBare(a *answer, r *http.Request, id json.RawMessage, p bareParams) {
	req := &sdk.CallToolRequest{
		Params: &sdk.CallToolParamsRaw{Meta: sdk.Meta{"traceparent": p.Meta.Trace}, Name: p.Name, Arguments: p.Arguments},
		Extra:  &sdk.RequestExtra{Header: r.Header},
	}
	a.Header().Set("Content-Type", "application/json")
	res, err := h.tools[p.Name](r.Context(), req)
	var msg []byte
	if err == nil {
		msg, err = bareMessage(id, res)
	}
	if err != nil {
		msg = mustJSON(map[string]any{"jsonrpc": "2.0", "id": id, "error": h.wireError(p.Name, err)})
	}
	a.Write(msg)
}

// bareMessage encodes a result for the older revisions.
func bareMessage(id json.RawMessage, res *sdk.CallToolResult) ([]byte, error) {
	type result struct {
		Content    []sdk.Content `json:"content"`
		Structured any           `json:"structuredContent,omitempty"`
		IsError    bool          `json:"isError,omitempty"`
	}
	return encodeMessage(id, result{res.Content, res.StructuredContent, res.IsError})
}

// encodeMessage encodes the answer to a request, without escapes for HTML.
func encodeMessage(id json.RawMessage, result any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  any             `json:"result"`
	}{"2.0", id, result})
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// wireError returns a tool's error as a JSON-RPC error.
func (s *server) wireError(tool string, err error) *jsonrpc.Error {
	if known, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return known
	}
	s.opt.Log.Error("tool call failed", "tool", tool, "err", err)
	return &jsonrpc.Error{Code: codeGeneral, Message: "internal error; the server's log has the cause"}
}
