package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"hutch"
)

// hears are told the session, and what its agent does.
type hears struct {
	session func(string)
	event   func(hutch.AgentEvent) error
}

func (c calls) runAgent(ctx context.Context, a arguments, h hears) (hutch.AgentResult, error) {
	return c.RunAgent(ctx, request[hutch.AgentRequest](a), h.session, h.event)
}

func (c calls) promptAgent(ctx context.Context, a arguments, h hears) (hutch.AgentResult, error) {
	h.session(a.text("session"))
	return c.PromptAgent(ctx, a.text("session"), request[hutch.AgentPrompt](a), h.event)
}

// followAgent takes no definition: the Go client reads what agents print that the server knows.
func (c calls) followAgent(ctx context.Context, a arguments, h hears) (hutch.AgentResult, error) {
	h.session(a.text("session"))
	return c.FollowAgent(ctx, a.text("session"), h.event)
}

// steps is a call of an agent whose answer has each step.
func steps(of func(calls, context.Context, arguments, hears) (hutch.AgentResult, error)) call {
	return func(c calls, ctx context.Context, a arguments) (any, error) {
		session, events := "", []hutch.AgentEvent{}
		res, err := of(c, ctx, a, hears{func(id string) { session = id }, func(e hutch.AgentEvent) error {
			events = append(events, e)
			if a.stopAt != "" && strings.Contains(e.Text, a.stopAt) {
				return errStop
			}
			return nil
		}})
		if errors.Is(err, errStop) {
			return map[string]any{"session": session, "events": events, "result": nil}, nil
		}
		return map[string]any{"session": session, "events": events, "result": worked(res)}, err
	}
}

// whole is one whose answer is the result.
func whole(of func(calls, context.Context, arguments, hears) (hutch.AgentResult, error)) call {
	return func(c calls, ctx context.Context, a arguments) (any, error) {
		res, err := of(c, ctx, a, hears{session: func(string) {}})
		return worked(res), err
	}
}

// worked is a result whose difference is bytes.
func worked(r hutch.AgentResult) any {
	b, _ := json.Marshal(r)
	fields := map[string]any{}
	json.Unmarshal(b, &fields)
	fields["diff"] = plain([]byte(r.Diff))
	return fields
}
