package audit

import (
	"context"
	"errors"
	"strings"
	"time"

	"hutch"
	"hutch/internal/text"
)

// Operation is one recorded call of a verb. It has no secrets: no environment, input, output or content of files.
type Operation struct {
	Time      time.Time     `json:"time"`            // when the operation began
	Token     string        `json:"token,omitempty"` // the id of the token, never the token
	TokenName string        `json:"tokenName,omitempty"`
	Owner     string        `json:"owner,omitempty"`
	Sandbox   string        `json:"sandbox,omitempty"`
	Verb      string        `json:"verb"`             // the method of hutch.Service, such as "Exec"
	Target    string        `json:"target,omitempty"` // a path, the id of a process, the beginning of a command
	Result    string        `json:"result"`           // "ok", or the kind of the error
	Error     string        `json:"error,omitempty"`  // message of the error
	Duration  time.Duration `json:"durationNs"`
	Surface   string        `json:"surface,omitempty"` // "mcp", "rest", "conversation", "console"
	Remote    string        `json:"remote,omitempty"`  // address of the client
	Request   string        `json:"request,omitempty"` // id of the HTTP request, which is unique
	// ClientRequest is the id that the client gave the request, in X-Request-Id.
	ClientRequest string `json:"clientRequest,omitempty"`
	Trace         string `json:"trace,omitempty"` // id of the operation's trace
}

// Outcome is how a call ended.
type Outcome struct {
	Err error // nil if it succeeded
	// Sandbox is the sandbox of the call if it became known only with the answer, such as the new id after Create. If
	// it is empty, the operation keeps its own sandbox.
	Sandbox string
}

// Observer gets every call of a verb: before it runs, and when it has ended.
type Observer interface {
	// Begin is called for every call, even if policy refuses it: then end is called at once, with the refusal. The call
	// is made with the context that Begin returns, and end is called exactly once, before the answer is sent. If Begin
	// returns an error, the call must not be made, and end is nil.
	Begin(ctx context.Context, op Operation) (call context.Context, end func(Outcome), err error)
}

// Observers calls several observers in order, and their end functions in reverse order.
type Observers []Observer

// Begin implements Observer. If an observer refuses, the end functions of the observers before it are called with that
// refusal.
func (list Observers) Begin(ctx context.Context, op Operation) (context.Context, func(Outcome), error) {
	ends := make([]func(Outcome), 0, len(list))
	finish := func(o Outcome) {
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i](o)
		}
	}
	for _, o := range list {
		next, end, err := o.Begin(ctx, op)
		if err != nil {
			finish(Outcome{Err: err})
			return ctx, nil, err
		}
		ctx, ends = next, append(ends, end)
	}
	return ctx, finish, nil
}

// Broker is the verb for a request of a sandbox to which brokered secrets were added. It has no caller, and is recorded
// when the request has been answered.
const Broker = "Broker"

// Model is the verb for an answer of a model during a call of Ask. The target has the model, the tokens and the cost.
// It is recorded when the answer has arrived.
const Model = "Model"

// Verbs for sign-ins and sign-outs at the console. They are not methods of hutch.Service. A refused SignIn has no
// token.
const (
	SignIn  = "SignIn"
	SignOut = "SignOut"
)

// OK is the result of a successful operation.
const OK = "ok"

// Canceled is the result of an operation whose client left before its end.
const Canceled = "canceled"

// ResultOf returns the result for an error.
func ResultOf(err error) string {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, context.Canceled):
		return Canceled
	default:
		return string(hutch.KindOf(err))
	}
}

// Head returns the beginning of s as valid UTF-8, at most n bytes; an ellipsis marks a cut.
func Head(s string, n int) string {
	const more = "…"
	if len(s) > n {
		s = text.Head(s, n-len(more), more)
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
