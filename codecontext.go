package hutch

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"time"
)

// Contexts are the verbs on code contexts: interpreters that keep their state from one run to the next. A session is
// a bash context.
type Contexts interface {
	// CreateContext starts an interpreter.
	CreateContext(ctx context.Context, sandbox string, req ContextRequest) (CodeContext, error)

	// Contexts lists a sandbox's contexts, oldest first.
	Contexts(ctx context.Context, sandbox string) ([]CodeContext, error)

	// DeleteContext ends a context and everything it started. It is idempotent.
	DeleteContext(ctx context.Context, sandbox, id string) error

	// Interrupt ends the current run as Ctrl-C would, and keeps the state. Without a current run it does nothing.
	Interrupt(ctx context.Context, sandbox, id string) error

	// RunCode runs code in a context, and creates the context if it is missing. Runs in one context wait for each
	// other, in the order of the calls. If out is not nil, it gets the events in the order in which they happened.
	// Output that the interpreter prints between runs is dropped. An error that the code raised is part of the
	// result. At the time limit the run is interrupted, the processes that it started are killed, and the context
	// keeps its state; an interpreter that ignores the interrupt is killed, and the next run gets a new one. The same
	// happens when ctx is done or out fails.
	RunCode(ctx context.Context, sandbox string, req RunRequest, out func(RunEvent) error) (RunResult, error)
}

// ContextRequest asks for a context.
type ContextRequest struct {
	ID       string            `json:"contextId,omitempty"` // minted when empty; an existing context is returned unchanged
	Language string            `json:"language,omitempty"`  // python, javascript, typescript, bash; default python
	Dir      string            `json:"cwd,omitempty"`       // default /workspace
	Env      map[string]string `json:"env,omitempty"`
	User     string            `json:"user,omitempty"`    // as in CreateRequest; default: the sandbox's user
	Secrets  []string          `json:"secrets,omitempty"` // as in CreateRequest, for this context
	// IdleTimeout ends a context after this time without a run; default 1800.
	IdleTimeout Seconds `json:"idleTimeout,omitempty"`
}

// ContextIdle is the idle timeout of a context that does not name one.
const ContextIdle = 30 * time.Minute

// Check refuses a request that no server can answer.
func (r ContextRequest) Check() error {
	if err := cmp.Or(checkOptionalID(r.ID), checkOptionalUser(r.User)); err != nil {
		return err
	}
	if longest := Seconds(1e8); !(r.IdleTimeout >= 0 && r.IdleTimeout <= longest) {
		return Errorf(Invalid, "idleTimeout is %v s: give up to %v, or leave it out for %v", r.IdleTimeout, longest, InSeconds(ContextIdle)).Naming(AboutField, "idleTimeout")
	}
	return checkSurroundings(r.Dir, r.Env, r.Secrets)
}

// CodeContext is the record of a context.
type CodeContext struct {
	ID         string    `json:"contextId"`
	SandboxID  string    `json:"sandboxId"`
	Language   string    `json:"language"`
	Dir        string    `json:"cwd"`
	CreatedAt  time.Time `json:"createdAt"`
	LastUsedAt time.Time `json:"lastUsedAt"`
	Executions int       `json:"executionCount"`
	Busy       bool      `json:"busy"`
}

// RunRequest asks for code to be run.
type RunRequest struct {
	// ContextID names the context. The default is "default-" and the language. A missing context is created, in
	// Language.
	ContextID string            `json:"contextId,omitempty"`
	Language  string            `json:"language,omitempty"` // default: the context's language, else python
	Code      string            `json:"code"`
	Dir       string            `json:"cwd,omitempty"`     // folder to change to before the run; the context stays there
	Env       map[string]string `json:"env,omitempty"`     // for this run
	Secrets   []string          `json:"secrets,omitempty"` // as in CreateRequest, for this run
	// Timeout counts from the start of the run; waiting for earlier runs does not count. Default 30; at most the
	// server's maximum.
	Timeout Seconds `json:"timeout,omitempty"`
	// MaxOutput and StreamOnly are as in ExecRequest.
	MaxOutput  int  `json:"maxOutput,omitempty"`
	StreamOnly bool `json:"-"`
	// Stdin is read by input(); nil is empty. It is read while the code runs, so an answer can depend on the question.
	Stdin io.Reader `json:"-"`
}

// Check refuses a request that no server can answer.
func (r RunRequest) Check() error {
	return cmp.Or(checkOptionalID(r.ContextID), checkProgram(r.Code, r.Dir, r.Env, r.Secrets), checkMaxOutput(r.MaxOutput))
}

// RunEvent is output, a result, an error, or a request for input.
type RunEvent struct {
	Output *Output
	Result *CodeResult
	Error  *CodeError
	Input  *InputRequest
}

// InputRequest says that the code waits for standard input and has read all input so far. Only Python reports this.
type InputRequest struct {
	Prompt   string `json:"prompt"`             // also part of the output
	Password bool   `json:"password,omitempty"` // the answer should not be shown while it is typed
}

// CodeResult is a value that the code produced, in every available form.
type CodeResult struct {
	// Main is set for the value of the last expression, and not for displayed values.
	Main bool `json:"main,omitempty"`
	// Data maps a MIME type to a value: text as a JSON string, images and PDF as a base64 string, JSON as itself.
	// Hutch adds two types: application/vnd.hutch.table+json {columns, rows, total}, the first rows of a table and
	// the number of all rows; and application/vnd.hutch.chart+json {type, title, elements, ...}, the content of a
	// figure. See docs/contexts.md.
	Data map[string]json.RawMessage `json:"data"`
}

// CodeError is an error that the code raised, or a syntax error in it.
type CodeError struct {
	Name      string `json:"name"`
	Message   string `json:"message"`
	Traceback string `json:"traceback"`
}

// RunResult is how a run ended.
type RunResult struct {
	ContextID  string
	SandboxID  string
	Executions int // number of runs in the context, including this one
	// ExitCode is the exit code of the last command in bash. In other languages it is 1 when there is an Error, or the
	// code's own exit code. After a time limit it is 137 in all languages.
	ExitCode  int
	Stdout    []byte
	Stderr    []byte
	Results   []CodeResult
	Error     *CodeError
	Duration  time.Duration // including the time that it waited
	TimedOut  bool
	Truncated bool // a part of Stdout, Stderr or Results is missing
	// Fresh says that the run was the first in its interpreter, so it began without state.
	Fresh bool
	// Ended says that the interpreter has ended (exit, a crash, a kill); the next run gets a new one.
	Ended bool
	// Limit names the sandbox limit that made the server end a program of this run ("memory"), or is empty. The
	// interpreter continues.
	Limit string
	// Denied is as in ExecResult.
	Denied []string
}

// Success reports whether the run ended by itself and raised no error.
func (r RunResult) Success() bool {
	return r.ExitCode == 0 && r.Error == nil && !r.TimedOut && !r.Ended && r.Limit == ""
}

// Text returns the value as text, or "" when it has no text form.
func (r CodeResult) Text() string {
	var text string
	json.Unmarshal(r.Data["text/plain"], &text)
	return text
}

// runResultJSON is RunResult on the wire; stdout and stderr are encoded as in execResultJSON.
type runResultJSON struct {
	Success    bool         `json:"success"`
	ContextID  string       `json:"contextId"`
	SandboxID  string       `json:"sandboxId"`
	Executions int          `json:"executionCount"`
	ExitCode   int          `json:"exitCode"`
	Stdout     string       `json:"stdout"`
	Stderr     string       `json:"stderr"`
	Encoding   string       `json:"encoding"`
	Results    []CodeResult `json:"results"`
	Error      *CodeError   `json:"error,omitempty"`
	Duration   int64        `json:"duration"` // ms
	TimedOut   bool         `json:"timedOut"`
	Truncated  bool         `json:"truncated"`
	Fresh      bool         `json:"fresh"`
	Ended      bool         `json:"ended"`
	Limit      string       `json:"limitExceeded,omitempty"`
	Denied     []string     `json:"denied,omitempty"`
}

func (r RunResult) MarshalJSON() ([]byte, error) {
	j := runResultJSON{
		Success: r.Success(), ContextID: r.ContextID, SandboxID: r.SandboxID, Executions: r.Executions, ExitCode: r.ExitCode,
		Results: r.Results, Error: r.Error,
		Duration: r.Duration.Milliseconds(), TimedOut: r.TimedOut, Truncated: r.Truncated, Fresh: r.Fresh, Ended: r.Ended, Limit: r.Limit, Denied: r.Denied,
	}
	if j.Results == nil {
		j.Results = []CodeResult{}
	}
	j.Stdout, j.Stderr, j.Encoding = encodeOutput(r.Stdout, r.Stderr)
	return json.Marshal(j)
}

func (r *RunResult) UnmarshalJSON(b []byte) error {
	var j runResultJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*r = RunResult{
		ContextID: j.ContextID, SandboxID: j.SandboxID, Executions: j.Executions, ExitCode: j.ExitCode,
		Results: j.Results, Error: j.Error,
		Duration: time.Duration(j.Duration) * time.Millisecond,
		TimedOut: j.TimedOut, Truncated: j.Truncated, Fresh: j.Fresh, Ended: j.Ended, Limit: j.Limit, Denied: j.Denied,
	}
	var err error
	r.Stdout, r.Stderr, err = decodeOutput(j.Stdout, j.Stderr, j.Encoding)
	return err
}
