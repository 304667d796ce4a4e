package client

import (
	"context"
	"encoding/json"
	"net/url"

	"hutch"
)

// RunAgent lets a coding agent work on a repository, in a new sandbox, and waits for it; see [hutch.AgentRequest]. session, if
// not nil, is called with the id of the session as soon as it is there, and show with what the agent does. The agent works on
// if ctx ends after that: see FollowAgent.
func (c *Client) RunAgent(ctx context.Context, req hutch.AgentRequest, session func(id string), show func(hutch.AgentEvent) error) (hutch.AgentResult, error) {
	return c.agent(ctx, endpoint{method: "POST", path: "/agents"}.check(req.Check()), req, session, show)
}

// PromptAgent gives the agent of a session its next prompt, and waits as RunAgent does.
func (c *Client) PromptAgent(ctx context.Context, session string, p hutch.AgentPrompt, show func(hutch.AgentEvent) error) (hutch.AgentResult, error) {
	return c.agent(ctx, ofSession("POST", session, "").check(p.Check()), p, nil, show)
}

// FollowAgent follows the last prompt of a session from its beginning, and waits until the agent has ended.
func (c *Client) FollowAgent(ctx context.Context, session string, show func(hutch.AgentEvent) error) (hutch.AgentResult, error) {
	return c.agent(ctx, ofSession("GET", session, ""), nil, nil, show)
}

// StopAgent ends the agent of a session, and keeps the session.
func (c *Client) StopAgent(ctx context.Context, session string) error {
	_, err := call[struct{}](ctx, c, ofSession("POST", session, "/stop"), nil)
	return err
}

func ofSession(method, session, more string) endpoint {
	return endpoint{method: method, path: "/agents/" + url.PathEscape(session) + more}.check(hutch.CheckID(session))
}

// agent makes a request, and passes on its events.
func (c *Client) agent(ctx context.Context, to endpoint, body any, session func(string), show func(hutch.AgentEvent) error) (res hutch.AgentResult, err error) {
	resp, err := c.do(ctx, to, body, "text/event-stream")
	if err != nil {
		return res, err
	}
	defer resp.Body.Close()
	return res, c.followEvents(ctx, resp, map[string]func([]byte) error{
		"session": func(data []byte) error {
			var s struct {
				ID string `json:"sandboxId"`
			}
			if err := json.Unmarshal(data, &s); err != nil {
				return c.fault(ctx, err)
			}
			if session != nil {
				session(s.ID)
			}
			return nil
		},
		"event": func(data []byte) error {
			var e hutch.AgentEvent
			if err := json.Unmarshal(data, &e); err != nil {
				return c.fault(ctx, err)
			}
			if show == nil {
				return nil
			}
			return show(e)
		},
	}, &res)
}
