package mcp

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	strict "github.com/segmentio/encoding/json"

	"hutch/internal/httpio"
)

// plainCall is the form of most messages in the modern era: a valid call of a tool that asks only for the result. The
// SDK gives each such call its own session and parses it a dozen times, which costs more than running a command. So
// plain calls are parsed once and answered here, with the same answers as the SDK's. Any other message goes to the SDK,
// which knows all the rules.
type plainCall struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      plainMeta       `json:"_meta"`
	} `json:"params"`
}

type plainMeta struct {
	Version      string                  `json:"io.modelcontextprotocol/protocolVersion"`
	Capabilities *sdk.ClientCapabilities `json:"io.modelcontextprotocol/clientCapabilities"`
	Client       sdk.Implementation      `json:"io.modelcontextprotocol/clientInfo"`
	Trace        string                  `json:"traceparent"`
}

// readPlain returns the call in a request, if it is a plain call. The body must be valid JSON.
func readPlain(r *http.Request, body []byte) (*plainCall, bool) {
	h := r.Header
	accept := strings.Join(h.Values("Accept"), ",")
	if r.Method != http.MethodPost || h.Get("Content-Type") != "application/json" || h.Get("Last-Event-Id") != "" ||
		!strings.Contains(accept, "application/json") || !strings.Contains(accept, "text/event-stream") {
		return nil, false
	}
	var c plainCall
	// Field names are matched case-sensitively, as in the SDK.
	_, err := strict.Parse(body, &c, strict.DisallowUnknownFields|strict.DontMatchCaseInsensitiveStructFields)
	return &c, err == nil && c.Version == "2.0" && plainID.Match(c.ID) &&
		c.Method == "tools/call" && h.Get("Mcp-Method") == c.Method && h.Get("Mcp-Name") == c.Params.Name &&
		c.Params.Meta.Version == modern && h.Get(headerVersion) == modern && c.Params.Meta.Capabilities != nil
}

// plainID matches the ids that the SDK sends back unchanged.
var plainID = regexp.MustCompile(`^(?:0|-?[1-9][0-9]{0,14}|"[ !#-\[\]-~]*")$`)

// request returns the call in the form in which the SDK would give it to a tool.
func (c *plainCall) request(r *http.Request) *sdk.CallToolRequest {
	meta := sdk.Meta{sdk.MetaKeyProtocolVersion: c.Params.Meta.Version, "traceparent": c.Params.Meta.Trace}
	return &sdk.CallToolRequest{
		Params: &sdk.CallToolParamsRaw{Meta: meta, Name: c.Params.Name, Arguments: c.Params.Arguments},
		Extra:  &sdk.RequestExtra{Header: r.Header},
	}
}

// servePlain answers a plain call of a tool of this server. For other requests it does nothing and returns false.
func (h *Handler) servePlain(a *answer, r *http.Request) bool {
	c, ok := readPlain(r, a.body)
	if !ok || h.tools[c.Params.Name] == nil {
		return false
	}
	header := a.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache, no-transform")
	res, err := h.tools[c.Params.Name](r.Context(), c.request(r))
	var msg []byte
	if err == nil {
		msg, err = h.resultMessage(c.ID, res)
	}
	if err != nil {
		h.opt.Log.Error("tool call failed", "tool", c.Params.Name, "err", err)
		msg = errorMessage(c.ID, codeGeneral, "internal error; the server's log has the cause")
	}
	// No flush, so that the whole answer, with its length, is one packet.
	a.Write(httpio.AppendEvent(nil, "", "message", msg))
	return true
}

// resultMessage encodes an answer of the modern era.
func (s *server) resultMessage(id json.RawMessage, res *sdk.CallToolResult) ([]byte, error) {
	type result struct {
		Meta       map[string]any `json:"_meta"`
		Content    []sdk.Content  `json:"content"`
		Structured any            `json:"structuredContent,omitempty"`
		IsError    bool           `json:"isError,omitempty"`
		Type       string         `json:"resultType"`
	}
	return encodeMessage(id, result{s.meta, res.Content, res.StructuredContent, res.IsError, "complete"})
}
