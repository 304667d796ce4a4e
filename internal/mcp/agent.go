package mcp

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
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
		Description: "Let a coding agent, such as Claude Code, work on a git repository in a sandbox of its own, wait for it, and show its changes as a diff. " +
			"Give repository and prompt to begin; give the returned sandboxId and a prompt to continue, or sandboxId alone to follow a prompt again. " +
			"With tries, several agents do the same at once, each in a copy. " +
			"The agent works on if this call ends early. It takes minutes.",
		Annotations: hints{destructive: true, openWorld: true}.annotations(),
		InputSchema: schema[runAgentArgs](nil),
	}, s.runAgent)
}

type runAgentArgs struct {
	Prompt     string  `json:"prompt,omitempty" jsonschema:"what the agent is to do"`
	Repository string  `json:"repository,omitempty" jsonschema:"URL of a git repository; begins a session"`
	Branch     string  `json:"branch,omitempty" jsonschema:"branch or tag to clone"`
	SandboxID  string  `json:"sandboxId,omitempty" jsonschema:"of a session that continues"`
	Agent      string  `json:"agent,omitempty" jsonschema:"claude (default), codex, gemini or opencode"`
	Image      string  `json:"image,omitempty" jsonschema:"template or image with the agent's program"`
	Timeout    float64 `json:"timeout,omitempty" jsonschema:"seconds; default 3600"`
	Tries      int     `json:"tries,omitempty" jsonschema:"with repository: how many agents try at once, 1 to 16; default 1"`
}

// ranAgent is the structured result of runAgent. With several tries, the fields other than Tries describe the first
// successful try or, if all failed, the first try.
type ranAgent struct {
	SandboxID string           `json:"sandboxId"`
	Success   bool             `json:"success"`
	ExitCode  int              `json:"exitCode"`
	TimedOut  bool             `json:"timedOut"`
	Answer    string           `json:"answer"`
	Diff      string           `json:"diff"`
	Truncated bool             `json:"truncated"` // the middle of a long diff, or bytes that are not UTF-8, were left out
	Files     int              `json:"files"`
	Added     int              `json:"added"`
	Removed   int              `json:"removed"`
	Usage     hutch.AgentUsage `json:"usage"`
	Tries     []triedAgent     `json:"tries,omitempty"`
}

// triedAgent is one of several tries in the structured result of runAgent.
type triedAgent struct {
	Try       int              `json:"try"`
	SandboxID string           `json:"sandboxId"`
	Success   bool             `json:"success"`
	Error     string           `json:"error,omitempty"`
	Diff      string           `json:"diff"`
	Truncated bool             `json:"truncated"`
	Files     int              `json:"files"`
	Added     int              `json:"added"`
	Removed   int              `json:"removed"`
	Usage     hutch.AgentUsage `json:"usage"`
}

func (s *server) runAgent(ctx context.Context, c *call, in runAgentArgs) (reply, error) {
	c.sandbox = in.SandboxID
	c.keepAlive()
	if in.Tries != 0 && in.Repository != "" {
		return s.tryAgent(ctx, c, in)
	}
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
	ran := ranOf(res, maxShown)
	return reply{fmt.Sprintf("%s\n%s\n\n%s", lineOf(res), ran.Answer, ran.Diff), ran}, nil
}

// ranOf returns a result that shows at most the given number of bytes of the diff.
func ranOf(res hutch.AgentResult, most int) ranAgent {
	return ranAgent{
		SandboxID: res.SandboxID, Success: res.Success, ExitCode: res.ExitCode, TimedOut: res.TimedOut, Answer: tail(readable([]byte(res.Answer)), maxShown),
		Diff:      readable(printed{[]byte(res.Diff), int64(len(res.Diff))}.excerpt(most)),
		Truncated: len(res.Diff) > most || !utf8.ValidString(res.Diff), Files: res.Files, Added: res.Added, Removed: res.Removed, Usage: res.Usage,
	}
}

// lineOf describes a result in one line.
func lineOf(res hutch.AgentResult) string {
	verdict := "done"
	switch {
	case res.TimedOut:
		verdict = "stopped at its time limit"
	case !res.Success:
		verdict = fmt.Sprintf("failed with exit code %d", res.ExitCode)
	}
	return fmt.Sprintf("%s · session %s · %s · %d files, +%d -%d", verdict, res.SandboxID, length(time.Duration(res.Duration)*time.Millisecond), res.Files, res.Added, res.Removed)
}

// tryAgent does the same as runAgent, but with several tries.
func (s *server) tryAgent(ctx context.Context, c *call, in runAgentArgs) (reply, error) {
	req, task, err := agentOf(in)
	if err == nil {
		err = req.CheckTries()
	}
	if err == nil && in.SandboxID != "" {
		err = errBoth
	}
	if err != nil {
		return reply{}, err
	}
	tries, err := coding.Try(ctx, s.opt.Agents, task, req.Tries)
	if err != nil {
		return reply{}, err
	}
	out := follow(ctx, c.req, hutch.Seconds(in.Timeout))
	var one sync.Mutex // because the agents report at the same time
	all, err := tries.Follow(ctx, func(e hutch.AgentEvent) error {
		one.Lock()
		defer one.Unlock()
		return out.add(hutch.Output{Stream: hutch.Stdout, Data: fmt.Appendf(nil, "%d: %s\n", e.Try, strings.TrimSpace(e.Tool+" "+e.Text))})
	})
	out.close()
	if err != nil {
		return reply{}, err
	}
	return triedReply(all), nil
}

// triedReply shows tries next to each other. They share the maximum length of an answer.
func triedReply(all hutch.AgentTries) reply {
	most := maxShown / len(all.Tries)
	best := 0
	var lines, diffs strings.Builder
	var list []triedAgent
	for i, t := range all.Tries {
		if t.Result.Success && !all.Tries[best].Result.Success {
			best = i
		}
		ran := ranOf(t.Result, most)
		list = append(list, triedAgent{t.Try, ran.SandboxID, ran.Success, t.Error, ran.Diff, ran.Truncated, ran.Files, ran.Added, ran.Removed, ran.Usage})
		line := lineOf(t.Result)
		if t.Error != "" {
			line = "session " + t.Result.SandboxID + " · " + t.Error
		}
		fmt.Fprintf(&lines, "try %d: %s\n", t.Try, line)
		fmt.Fprintf(&diffs, "\n# try %d\n%s", t.Try, ran.Diff)
	}
	ran := ranOf(all.Tries[best].Result, most)
	ran.Tries = list
	return reply{lines.String() + diffs.String(), ran}
}

var errBoth = hutch.Errorf(hutch.Invalid, "give repository, to begin, or the sandboxId of a session, to continue").Naming(hutch.AboutField, "repository")

// beginAgent begins a session, continues one, or finds the last prompt of one.
func (s *server) beginAgent(ctx context.Context, in runAgentArgs) (*coding.Session, string, error) {
	switch {
	case (in.Repository == "") == (in.SandboxID == ""):
		return nil, "", errBoth
	case in.Tries != 0:
		return nil, "", hutch.Errorf(hutch.Invalid, "tries is for a new session: give it with repository, or leave it out").Naming(hutch.AboutField, "tries")
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
	req, task, err := agentOf(in)
	if err == nil {
		err = req.CheckOne()
	}
	if err != nil {
		return nil, "", err
	}
	return coding.Begin(ctx, s.opt.Agents, task)
}

// agentOf turns the arguments into a request, which is not fully checked yet, and a task.
func agentOf(in runAgentArgs) (hutch.AgentRequest, coding.Task, error) {
	req := hutch.AgentRequest{
		Prompt: in.Prompt, Repository: hutch.GitCloneRequest{URL: in.Repository, Branch: in.Branch}, Timeout: hutch.Seconds(in.Timeout), Tries: in.Tries,
	}
	if err := req.Check(); err != nil {
		return req, coding.Task{}, err
	}
	d, err := coding.Named(cmp.Or(in.Agent, "claude"))
	return req, coding.Task{
		Agent: d, Sandbox: hutch.CreateRequest{Image: in.Image}, Repository: coding.Repository{GitCloneRequest: req.Repository},
		Prompt: in.Prompt, Timeout: req.Timeout.Duration(),
	}, err
}
