package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/problem"
)

// The codes of failures. The 2026-07-28 revision does not allow new codes in this range, so its clients get the code as
// data in a result.
const (
	codeGeneral        = -32000
	codeNotFound       = -32001
	codeTimeout        = -32002
	codeLimit          = -32003
	codeInvalidCommand = -32004
	codeInvalidRequest = jsonrpc.CodeInvalidRequest
	codeParse          = jsonrpc.CodeParseError
)

// codes is the only table of kinds and their codes for MCP clients; other kinds are codeGeneral.
var codes = map[hutch.Kind]int64{
	hutch.Invalid:   codeInvalidRequest,
	hutch.NotFound:  codeNotFound,
	hutch.Timeout:   codeTimeout,
	hutch.Exhausted: codeLimit,
}

// codeOf returns an error's code. Errors about the command or its language have codes of their own.
func codeOf(e *hutch.Error) int64 {
	about, name := e.About()
	if about == hutch.AboutField && (name == "command" || name == "code" || name == "language") && (e.Kind == hutch.Invalid || e.Kind == hutch.Unsupported) {
		return codeInvalidCommand
	}
	if e.Kind == hutch.NotFound && isInside(e) {
		return codeGeneral // the error is about a file or a process, not about the sandbox
	}
	if code, ok := codes[e.Kind]; ok {
		return code
	}
	return codeGeneral
}

// isInside reports whether an error is about a file or a process in a sandbox.
func isInside(e *hutch.Error) bool {
	about, _ := e.About()
	return about == hutch.AboutFile || about == hutch.AboutProcess
}

// failure is an error as a client of either era sees it.
type failure struct {
	Code    int64          `json:"code"`
	Message string         `json:"message"`
	Data    map[string]any `json:"data,omitempty"`
	// printed is the command's output until the failure.
	printed string
	// inside says that the call was valid, but failed because of a file or a process in the sandbox. There is no code
	// for that, so clients of both eras get it as the result of a tool, which they show to models.
	inside bool
}

// maxListed is how many sandboxes an error lists.
const maxListed = 50

func (c *call) failure(ctx context.Context, err error) failure {
	e := hutch.AsError(err)
	if ctx.Err() != nil {
		e = hutch.Errorf(hutch.Unavailable, "the call was cancelled: what it ran was killed, with everything it had started")
	} else if e.Kind == hutch.Internal {
		c.s.opt.Log.Error("tool call failed", "tool", c.tool, "sandbox", c.sandbox, "err", e.Cause)
	}
	f := failure{Code: codeOf(e), Message: e.Message, Data: maps.Clone(e.Data)}
	if f.Data == nil {
		f.Data = map[string]any{}
	}
	f.Data["kind"] = e.Kind
	f.inside = isInside(e) && (e.Kind == hutch.NotFound || e.Kind == hutch.Conflict)
	if f.Code == codeNotFound {
		f.Data["sandboxId"] = c.sandbox
		f.Data["availableSandboxes"] = c.available(ctx)
	}
	if u, ok := errors.AsType[*unfinished](err); ok {
		u.output.into(f.Data)
		f.printed = u.text
	}
	return f
}

// available lists the caller's newest sandboxes, one of which the caller could have meant.
func (c *call) available(ctx context.Context) []string {
	all, err := c.s.svc.Sandboxes(ctx, hutch.Filter{Brief: true})
	if err != nil {
		return []string{}
	}
	ids := make([]string, 0, min(len(all), maxListed))
	for _, sb := range all[max(0, len(all)-maxListed):] {
		ids = append(ids, sb.ID)
	}
	return ids
}

// fail turns err into the form that the call's era expects.
func (c *call) fail(ctx context.Context, err error) (*sdk.CallToolResult, error) {
	f := c.failure(ctx, err)
	if a := c.answer(); a != nil {
		a.ask(problem.Challenge(f.Data))
	}
	return f.render(c.modern())
}

// render gives the older revisions a JSON-RPC error and the modern one a result. The JSON-RPC error must have the SDK's
// own type and must not be wrapped. Otherwise the SDK would turn it into a result.
func (f failure) render(modern bool) (*sdk.CallToolResult, error) {
	if !modern && !f.inside {
		data, _ := json.Marshal(f.Data) // Data holds only strings and numbers, so this cannot fail
		return nil, &jsonrpc.Error{Code: f.Code, Message: join(f.Message, tail(f.printed, maxInMessage)), Data: data}
	}
	return &sdk.CallToolResult{
		IsError:           true,
		Content:           []sdk.Content{&sdk.TextContent{Text: join(f.Message, f.printed)}},
		StructuredContent: map[string]any{"error": f},
	}, nil
}

// maxInMessage is how much of the output the message of a JSON-RPC error contains: most clients show a model only the
// message, without the data.
const maxInMessage = 2000

func join(message, printed string) string {
	if strings.TrimSpace(printed) == "" {
		return message
	}
	return message + "\nIt had printed:\n" + printed
}
