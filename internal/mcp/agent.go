package mcp

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/coding"
)

// addAgentTool registers the tool of coding agents.
func (s *server) addAgentTool() {
	add(s, &sdk.Tool{
		Name: "runAgent", Title: "Let a coding agent work",
		Description: "Let a coding agent, such as Claude Code, work on a git repository in a sandbox of its own, wait for it, and show what it changed as a diff. " +
			"Give repository and prompt to begin; give the returned sandboxId and a prompt to go on, or sandboxId alone to follow a prompt again. " +
			"The agent works on if this call ends early. It takes minutes.",
		Annotations:  hints{destructive: true, openWorld: true}.annotations(),
		InputSchema:  schema[runAgentArgs](nil),
		OutputSchema: result[ranAgent](),
	}, s.runAgent)
}

type runAgentArgs struct {
	Prompt     string  `json:"prompt,omitempty" jsonschema:"what the agent is to do"`
	Repository string  `json:"repository,omitempty" jsonschema:"URL of a git repository; begins a session"`
	Branch     string  `json:"branch,omitempty" jsonschema:"branch or tag to clone"`
	SandboxID  string  `json:"sandboxId,omitempty" jsonschema:"of a session that goes on"`
	Agent      string  `json:"agent,omitempty" jsonschema:"claude (default), codex, gemini or opencode"`
	Image      string  `json:"image,omitempty" jsonschema:"template or image with the agent's program"`
	Timeout    float64 `json:"timeout,omitempty" jsonschema:"seconds; default 3600"`
}

// ranAgent is the structured result of runAgent.
type ranAgent struct {
	SandboxID string           `json:"sandboxId"`
	Success   bool             `json:"success"`
	ExitCode  int              `json:"exitCode"`
	TimedOut  bool             `json:"timedOut"`
	Answer    string           `json:"answer"`
	Diff      string           `json:"diff"`
	Truncated bool             `json:"truncated" jsonschema:"the middle of a long diff was left out, or bytes that are not UTF-8"`
	Files     int              `json:"files"`
	Added     int              `json:"added"`
	Removed   int              `json:"removed"`
	Usage     hutch.AgentUsage `json:"usage"`
}

func (s *server) runAgent(ctx context.Context, c *call, in runAgentArgs) (reply, error) {
	c.sandbox = in.SandboxID
	c.keepAlive()
	session, process, err := s.beginAgent(ctx, in)
	if err != nil {
		return reply{}, err
	}
	c.sandbox = session.ID
	out := follow(ctx, c.req, hutch.Seconds(in.Timeout))
	res, err := session.Follow(ctx, process, func(e hutch.AgentEvent) error {
		return out.add(hutch.Output{Stream: hutch.Stdout, Data: []byte(strings.TrimSpace(e.Tool+" "+e.Text) + "\n")})
	})
	out.close()
	if err != nil {
		return reply{}, err
	}
	diff := readable(printed{[]byte(res.Diff), int64(len(res.Diff))}.excerpt(maxShown))
	ran := ranAgent{
		SandboxID: res.SandboxID, Success: res.Success, ExitCode: res.ExitCode, TimedOut: res.TimedOut, Answer: tail(readable([]byte(res.Answer)), maxShown), Diff: diff,
		Truncated: len(res.Diff) > maxShown || !utf8.ValidString(res.Diff), Files: res.Files, Added: res.Added, Removed: res.Removed, Usage: res.Usage,
	}
	verdict := "done"
	switch {
	case res.TimedOut:
		verdict = "stopped at its time limit"
	case !res.Success:
		verdict = fmt.Sprintf("failed with exit code %d", res.ExitCode)
	}
	text := fmt.Sprintf("%s · session %s · %s · %d files, +%d -%d\n%s\n\n%s", verdict, res.SandboxID, length(time.Duration(res.Duration)*time.Millisecond), res.Files, res.Added, res.Removed, ran.Answer, diff)
	return reply{text, ran}, nil
}

// beginAgent begins a session, goes on in one, or finds its last prompt.
func (s *server) beginAgent(ctx context.Context, in runAgentArgs) (*coding.Session, string, error) {
	switch {
	case (in.Repository == "") == (in.SandboxID == ""):
		return nil, "", hutch.Errorf(hutch.Invalid, "give repository, to begin, or the sandboxId of a session, to go on").Naming(hutch.AboutField, "repository")
	case in.Repository != "":
		return s.openAgent(ctx, in)
	}
	session, err := coding.Find(ctx, s.opt.Agents, in.SandboxID, coding.Definition{})
	if err != nil {
		return nil, "", err
	}
	if in.Prompt == "" {
		p, err := session.Last(ctx)
		return session, p.ID, err
	}
	p := hutch.AgentPrompt{Prompt: in.Prompt, Timeout: hutch.Seconds(in.Timeout)}
	if err := p.Check(); err != nil {
		return nil, "", err
	}
	process, err := session.Start(ctx, p.Prompt, p.Timeout.Duration())
	return session, process, err
}

func (s *server) openAgent(ctx context.Context, in runAgentArgs) (*coding.Session, string, error) {
	req := hutch.AgentRequest{Prompt: in.Prompt, Repository: hutch.GitCloneRequest{URL: in.Repository, Branch: in.Branch}, Timeout: hutch.Seconds(in.Timeout)}
	if err := req.Check(); err != nil {
		return nil, "", err
	}
	d, err := coding.Named(cmp.Or(in.Agent, "claude"))
	if err != nil {
		return nil, "", err
	}
	return coding.Begin(ctx, s.opt.Agents, d, hutch.CreateRequest{Image: in.Image}, coding.Repository{GitCloneRequest: req.Repository}, in.Prompt, req.Timeout.Duration())
}
