package hutch

import (
	"encoding/json"
	"io"
	"strings"
)

// AgentRequest asks a coding agent to work on a repository, in a new sandbox. That sandbox is the session, and is kept.
type AgentRequest struct {
	// Agent is claude (the default), codex, gemini or opencode. Definition, in YAML, describes another agent.
	Agent      string `json:"agent,omitempty"`
	Definition string `json:"definition,omitempty"`
	// Prompt is the agent's task.
	Prompt string `json:"prompt"`
	// Repository is cloned; its field dir is not used.
	Repository GitCloneRequest `json:"repository,omitzero"`
	// Archive has the files, in place of a repository to clone: a tar archive, plain or compressed with gzip, or a zip
	// archive. Git settings and hooks in it are left out. It is read once.
	Archive io.Reader `json:"-"`
	// Tries is how many agents get the same prompt at once, each in its own copy of the files: 1 to MaxTries. It is 0
	// in a request for one session.
	Tries int `json:"tries,omitempty"`

	// The following fields are as in CreateRequest. The agent's definition supplies those that are empty.

	Image   string            `json:"image,omitempty"` // or the name of a template
	Runtime string            `json:"runtime,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Network Network           `json:"network,omitzero"`
	Limits  Limits            `json:"limits,omitzero"`

	Timeout Seconds `json:"timeout,omitempty"` // ends the agent; default an hour
	Keep    Seconds `json:"keep,omitempty"`    // total lifetime of the session; default a week
	Detach  bool    `json:"detach,omitempty"`  // do not wait for the agent
}

// AgentPrompt is the next task of an agent in a session.
type AgentPrompt struct {
	Definition string  `json:"definition,omitempty"` // definition of the agent, if the server does not have one
	Prompt     string  `json:"prompt"`
	Timeout    Seconds `json:"timeout,omitempty"`
	Detach     bool    `json:"detach,omitempty"`
}

// MaxPrompt is the longest prompt, in bytes.
const MaxPrompt = 1 << 20

// MaxTries is the highest number of tries at once.
const MaxTries = 16

// Check refuses a request that no server can answer.
func (r AgentRequest) Check() error {
	if r.Agent != "" && r.Definition != "" {
		return Errorf(Invalid, "agent and definition both say which agent: give one").Naming(AboutField, "agent")
	}
	if err := (AgentPrompt{Prompt: r.Prompt, Timeout: r.Timeout}).Check(); err != nil {
		return err
	}
	switch {
	case r.Archive == nil:
		if err := r.Repository.Check(); err != nil {
			return err
		}
	case r.Repository != GitCloneRequest{}:
		return Errorf(Invalid, "the request has an archive and a repository to clone: give one").Naming(AboutField, "repository")
	}
	if r.Tries < 0 || r.Tries > MaxTries {
		return errTries(r.Tries)
	}
	return checkLife(0, r.Keep, "")
}

// CheckTries does the same as Check, for a request of several tries.
func (r AgentRequest) CheckTries() error {
	if r.Tries == 0 {
		return errTries(0)
	}
	return r.Check()
}

func errTries(n int) error {
	return Errorf(Invalid, "tries is %d: give 1 to %d", n, MaxTries).Naming(AboutField, "tries")
}

// CheckOne does the same as Check, for a request of one session.
func (r AgentRequest) CheckOne() error {
	if r.Tries != 0 {
		return Errorf(Invalid, "tries asks for several sessions: send the request to POST /agents/tries, or leave tries out").Naming(AboutField, "tries")
	}
	return r.Check()
}

// Check refuses a prompt that no agent can follow.
func (p AgentPrompt) Check() error {
	if strings.TrimSpace(p.Prompt) == "" || len(p.Prompt) > MaxPrompt {
		return Errorf(Invalid, "the prompt has %d bytes: say in 1 to %d what the agent is to do", len(p.Prompt), MaxPrompt).Naming(AboutField, "prompt")
	}
	return checkLife(0, p.Timeout, "")
}

// AgentEventType is the kind of an [AgentEvent].
type AgentEventType string

const (
	AgentBegan  AgentEventType = "began"  // Text is the name of the model, if the agent reports it
	AgentSaid   AgentEventType = "said"   // Text is what the agent says
	AgentCalled AgentEventType = "called" // the agent uses Tool, for the purpose in Text
	AgentGot    AgentEventType = "got"    // Text is the tool's result
	AgentLog    AgentEventType = "log"    // Text is a line that the agent prints outside of its stream of events
	AgentEnded  AgentEventType = "ended"  // Text is the agent's last message
)

// AgentEvent is one event of an agent, in the same form for all agents.
type AgentEvent struct {
	Type      AgentEventType `json:"type"`
	Text      string         `json:"text,omitempty"`
	Tool      string         `json:"tool,omitempty"`
	Failed    bool           `json:"failed,omitempty"`
	Continues bool           `json:"continues,omitempty"` // Text continues the Text of the previous event
	Usage     *AgentUsage    `json:"usage,omitempty"`     // only for AgentEnded
	Try       int            `json:"try,omitempty"`       // number among several tries, from 1
}

// AgentUsage is the usage that an agent reports; 0 for values that it does not report.
type AgentUsage struct {
	Turns        int     `json:"turns"`
	InputTokens  int     `json:"inputTokens"` // including tokens from a cache
	OutputTokens int     `json:"outputTokens"`
	Cost         float64 `json:"cost"` // US dollars
}

// AgentResult is the result of a prompt. If the request does not wait, it has only the session and the agent.
type AgentResult struct {
	SandboxID string
	Agent     string
	// Success reports that the agent ended by itself and saw no error.
	Success  bool
	ExitCode int
	TimedOut bool
	Duration int64  // ms
	Answer   string // the agent's last message
	Usage    AgentUsage
	// Diff has all changes since the session began, as git prints them, byte by byte.
	Diff    string
	Files   int // number of changed files
	Added   int // lines
	Removed int
}

// agentResultJSON is AgentResult on the wire. If Diff is not UTF-8, it is base64, and encoding says so.
type agentResultJSON struct {
	SandboxID string     `json:"sandboxId"`
	Agent     string     `json:"agent"`
	Success   bool       `json:"success"`
	ExitCode  int        `json:"exitCode"`
	TimedOut  bool       `json:"timedOut"`
	Duration  int64      `json:"duration"`
	Answer    string     `json:"answer"`
	Usage     AgentUsage `json:"usage"`
	Diff      string     `json:"diff"`
	Encoding  string     `json:"encoding,omitempty"`
	Files     int        `json:"files"`
	Added     int        `json:"added"`
	Removed   int        `json:"removed"`
}

func (r AgentResult) MarshalJSON() ([]byte, error) {
	j := agentResultJSON{r.SandboxID, r.Agent, r.Success, r.ExitCode, r.TimedOut, r.Duration, r.Answer, r.Usage, r.Diff, "", r.Files, r.Added, r.Removed}
	j.Encoding = armour(&j.Diff)
	return json.Marshal(j)
}

func (r *AgentResult) UnmarshalJSON(b []byte) error {
	var j agentResultJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	if err := strip(j.Encoding, &j.Diff); err != nil {
		return err
	}
	*r = AgentResult{j.SandboxID, j.Agent, j.Success, j.ExitCode, j.TimedOut, j.Duration, j.Answer, j.Usage, j.Diff, j.Files, j.Added, j.Removed}
	return nil
}

// AgentTries is the result of several tries.
type AgentTries struct {
	// ID finds the tries again. It is the value of the label hutch.agent.tries of their sandboxes.
	ID    string     `json:"id"`
	Tries []AgentTry `json:"tries"`
}

// AgentTry is one of several tries.
type AgentTry struct {
	Try    int         `json:"try"` // from 1
	Result AgentResult `json:"result"`
	// Kind and Error say why there is no result. The session can still exist.
	Kind  Kind   `json:"kind,omitempty"`
	Error string `json:"error,omitempty"`
}
