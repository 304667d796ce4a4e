package client

import (
	"context"
	"encoding/json"
	"net/http"

	"hutch"
)

// RunAgent lets a coding agent work on a repository, in a new sandbox, and waits for it; see [hutch.AgentRequest].
// session, if not nil, is called with the id of the session as soon as the session exists, and show with the agent's
// events. If ctx ends after that, the agent continues: see FollowAgent.
func (c *Client) RunAgent(ctx context.Context, req hutch.AgentRequest, session func(id string), show func(hutch.AgentEvent) error) (hutch.AgentResult, error) {
	var pass func(agentSession)
	if session != nil {
		pass = func(s agentSession) { session(s.ID) }
	}
	return beginAgents[hutch.AgentResult](ctx, c, filled("POST /agents").check(req.CheckOne()), req, pass, show)
}

// TryAgent gives the same prompt to req.Tries agents at once, each in its own copy of one sandbox, and waits for all of
// them. session, if not nil, is called once for each agent, with the id of the tries (for [Client.FollowTries]) and the
// id of the agent's session. show is called with the events of all agents.
func (c *Client) TryAgent(ctx context.Context, req hutch.AgentRequest, session func(tries string, try int, id string), show func(hutch.AgentEvent) error) (hutch.AgentTries, error) {
	return beginAgents[hutch.AgentTries](ctx, c, filled("POST /agents/tries").check(req.CheckTries()), req, ofTries(session), show)
}

// FollowTries follows several tries from the beginning of their prompt, and waits until all their agents have ended.
func (c *Client) FollowTries(ctx context.Context, tries string, session func(tries string, try int, id string), show func(hutch.AgentEvent) error) (hutch.AgentTries, error) {
	return agents[hutch.AgentTries](ctx, c, filled("GET /agents/{tries}/tries", tries), nil, ofTries(session), show)
}

func ofTries(session func(tries string, try int, id string)) func(agentSession) {
	if session == nil {
		return nil
	}
	return func(s agentSession) { session(s.Tries, s.Try, s.ID) }
}

// PromptAgent gives the agent of a session its next prompt, and waits as RunAgent does.
func (c *Client) PromptAgent(ctx context.Context, session string, p hutch.AgentPrompt, show func(hutch.AgentEvent) error) (hutch.AgentResult, error) {
	return agents[hutch.AgentResult](ctx, c, filled("POST /agents/{session}", session).check(p.Check()), p, nil, show)
}

// FollowAgent follows the last prompt of a session from its beginning, and waits until the agent has ended.
func (c *Client) FollowAgent(ctx context.Context, session string, show func(hutch.AgentEvent) error) (hutch.AgentResult, error) {
	return agents[hutch.AgentResult](ctx, c, filled("GET /agents/{session}", session), nil, nil, show)
}

// StopAgent ends the agent of a session, and keeps the session.
func (c *Client) StopAgent(ctx context.Context, session string) error {
	_, err := call[struct{}](ctx, c, filled("POST /agents/{session}/stop", session), nil)
	return err
}

// agentSession is the event session.
type agentSession struct {
	ID    string `json:"sandboxId"`
	Tries string `json:"tries"`
	Try   int    `json:"try"`
}

// beginAgents makes a request that can have an archive, and passes on its events.
func beginAgents[T any](ctx context.Context, c *Client, to endpoint, req hutch.AgentRequest, session func(agentSession), show func(hutch.AgentEvent) error) (res T, err error) {
	if to.err != nil || req.Archive == nil {
		return agents[T](ctx, c, to, req, session, show)
	}
	resp, end, err := c.sendForm(ctx, to, req, "archive", req.Archive)
	defer func() { err = end(err) }()
	if err != nil {
		return res, err
	}
	return followAgents[T](ctx, c, resp, session, show)
}

// agents makes a request, and passes on its events.
func agents[T any](ctx context.Context, c *Client, to endpoint, body any, session func(agentSession), show func(hutch.AgentEvent) error) (res T, err error) {
	resp, err := c.do(ctx, to, body, "text/event-stream")
	if err != nil {
		return res, err
	}
	return followAgents[T](ctx, c, resp, session, show)
}

func followAgents[T any](ctx context.Context, c *Client, resp *http.Response, session func(agentSession), show func(hutch.AgentEvent) error) (res T, err error) {
	defer resp.Body.Close()
	return res, c.followEvents(ctx, resp, map[string]func([]byte) error{
		"session": func(data []byte) error {
			var s agentSession
			if err := json.Unmarshal(data, &s); err != nil {
				return c.fault(ctx, err)
			}
			if session != nil {
				session(s)
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
