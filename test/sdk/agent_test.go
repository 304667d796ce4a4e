package sdk

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	"hutch"
)

// agentCallbacks receive the session, and the events of its agent.
type agentCallbacks struct {
	session func(string)
	event   func(hutch.AgentEvent) error
}

func (c calls) runAgent(ctx context.Context, a arguments, h agentCallbacks) (hutch.AgentResult, error) {
	return c.RunAgent(ctx, agentRequest(a), h.session, h.event)
}

// agentRequest returns the request of a case, which can have an archive in base64.
func agentRequest(a arguments) hutch.AgentRequest {
	req := request[hutch.AgentRequest](a)
	if archive := a.text("archive"); archive != "" {
		req.Archive = base64.NewDecoder(base64.StdEncoding, strings.NewReader(archive))
	}
	return req
}

func (c calls) tryAgent(ctx context.Context, a arguments, session func(string, int, string), event func(hutch.AgentEvent) error) (hutch.AgentTries, error) {
	return c.TryAgent(ctx, agentRequest(a), session, event)
}

func (c calls) followTries(ctx context.Context, a arguments, session func(string, int, string), event func(hutch.AgentEvent) error) (hutch.AgentTries, error) {
	return c.FollowTries(ctx, a.text("tries"), session, event)
}

// triesSteps makes a call of several agents. Its answer has each step.
func triesSteps(of func(calls, context.Context, arguments, func(string, int, string), func(hutch.AgentEvent) error) (hutch.AgentTries, error)) call {
	return func(c calls, ctx context.Context, a arguments) (any, error) {
		all, sessions, events := "", []int{}, []hutch.AgentEvent{}
		res, err := of(c, ctx, a, func(tries string, try int, _ string) { all, sessions = tries, append(sessions, try) }, func(e hutch.AgentEvent) error {
			events = append(events, e)
			if a.stopAt != "" && strings.Contains(e.Text, a.stopAt) {
				return errStop
			}
			return nil
		})
		if errors.Is(err, errStop) {
			return map[string]any{"tries": all, "sessions": sessions, "events": events, "result": nil}, nil
		}
		return map[string]any{"tries": all, "sessions": sessions, "events": events, "result": tried(res)}, err
	}
}

// wholeTries makes a call of several agents. Its answer is the result of each.
func wholeTries(of func(calls, context.Context, arguments, func(string, int, string), func(hutch.AgentEvent) error) (hutch.AgentTries, error)) call {
	return func(c calls, ctx context.Context, a arguments) (any, error) {
		res, err := of(c, ctx, a, nil, nil)
		return tried(res), err
	}
}

// tried returns the result of tries, with the differences as bytes.
func tried(all hutch.AgentTries) any {
	list := []any{}
	for _, t := range all.Tries {
		fields := map[string]any{"try": t.Try, "result": worked(t.Result)}
		if t.Error != "" {
			fields["kind"], fields["error"] = t.Kind, t.Error
		}
		list = append(list, fields)
	}
	return map[string]any{"id": all.ID, "tries": list}
}

func (c calls) promptAgent(ctx context.Context, a arguments, h agentCallbacks) (hutch.AgentResult, error) {
	h.session(a.text("session"))
	return c.PromptAgent(ctx, a.text("session"), request[hutch.AgentPrompt](a), h.event)
}

// followAgent ignores the argument definition: FollowAgent of the Go client has no such parameter. It can follow only
// agents that the server knows.
func (c calls) followAgent(ctx context.Context, a arguments, h agentCallbacks) (hutch.AgentResult, error) {
	h.session(a.text("session"))
	return c.FollowAgent(ctx, a.text("session"), h.event)
}

// steps makes a call of an agent. Its answer has each step.
func steps(of func(calls, context.Context, arguments, agentCallbacks) (hutch.AgentResult, error)) call {
	return func(c calls, ctx context.Context, a arguments) (any, error) {
		session, events := "", []hutch.AgentEvent{}
		res, err := of(c, ctx, a, agentCallbacks{func(id string) { session = id }, func(e hutch.AgentEvent) error {
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

// whole makes a call of an agent. Its answer is the result.
func whole(of func(calls, context.Context, arguments, agentCallbacks) (hutch.AgentResult, error)) call {
	return func(c calls, ctx context.Context, a arguments) (any, error) {
		res, err := of(c, ctx, a, agentCallbacks{session: func(string) {}})
		return worked(res), err
	}
}

// worked returns a result whose difference is bytes.
func worked(r hutch.AgentResult) any {
	b, _ := json.Marshal(r)
	fields := map[string]any{}
	json.Unmarshal(b, &fields)
	fields["diff"] = plain([]byte(r.Diff))
	return fields
}
