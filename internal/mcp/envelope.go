package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	strict "github.com/segmentio/encoding/json"

	"hutch"
)

// envelope has the fields of a message that are read before the SDK reads the message.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method json.RawMessage `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// readEnvelope reads a message; ok is false if it is not a JSON object.
func readEnvelope(body []byte) (e envelope, ok bool) {
	if !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) {
		return e, false
	}
	_, err := strict.Parse(body, &e, strict.DontMatchCaseInsensitiveStructFields)
	return e, err == nil
}

const noMethod = "the message has no method: it is not a JSON-RPC request"

// noMessage reports whether a JSON object is neither a request nor an answer. The SDK would mistake it for an answer
// and send nothing.
func (e envelope) noMessage() bool { return e.Method == nil && e.Result == nil && e.Error == nil }

// undeclared are methods that the SDK answers with empty lists, although this server does not declare their
// capabilities.
var undeclared = []string{
	"prompts/list", "prompts/get", "resources/list", "resources/read", "resources/templates/list", "resources/subscribe",
	"resources/unsubscribe", "completion/complete", "logging/setLevel",
}

func errUndeclared(method string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "this server has no " + method + ": it has tools only"}
}

// refuseUndeclared is middleware that answers undeclared methods as unknown.
func refuseUndeclared(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if slices.Contains(undeclared, method) {
			return nil, errUndeclared(method)
		}
		return next(ctx, method, req)
	}
}

// refuseUnknownTool is middleware that answers a call of an unknown tool with the names of the tools that exist.
func (s *server) refuseUnknownTool(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if call, ok := req.(*sdk.CallToolRequest); ok && !slices.Contains(s.names, call.Params.Name) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown tool %.80q: use %s", call.Params.Name, hutch.JoinNames(s.names, "or"))}
		}
		return next(ctx, method, req)
	}
}

// refuseEnvelope answers a malformed message, or one that calls a method for which the modern era requires an error
// status.
func (h *Handler) refuseEnvelope(a *answer, modern bool) bool {
	e, ok := readEnvelope(a.body)
	if !ok {
		return false
	}
	id := (&bareRequest{ID: e.ID}).id()
	if e.noMessage() {
		writeError(a, http.StatusBadRequest, id, codeInvalidRequest, noMethod)
		return true
	}
	var method string
	json.Unmarshal(e.Method, &method) // the SDK refuses a value that is not a string
	if !modern || id == nil || fixtures != nil || !slices.Contains(undeclared, method) {
		return false
	}
	why := errUndeclared(method)
	writeError(a, http.StatusNotFound, id, why.Code, why.Message)
	return true
}
