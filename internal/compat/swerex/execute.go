package swerex

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/compat"
)

// maxStream is how many bytes of stdout and of stderr an answer has.
const maxStream = 4 << 20

// words is a command: a string, or a list of strings.
type words []string

func (c *words) UnmarshalJSON(b []byte) error {
	var text *string
	if json.Unmarshal(b, &text) != nil {
		return json.Unmarshal(b, (*[]string)(c))
	}
	*c = nil
	if text != nil {
		*c = words{*text}
	}
	return nil
}

// command is the body of execute, in the terms of Python's subprocess.run.
type command struct {
	Command words             `json:"command"`
	Timeout *float64          `json:"timeout"`
	Shell   bool              `json:"shell"`
	Check   bool              `json:"check"`
	Message string            `json:"error_msg"`
	Env     map[string]string `json:"env"`
	Dir     *string           `json:"cwd"`
	Merge   bool              `json:"merge_output_streams"`
}

// request turns the command into a request of Hutch.
func (c command) request(longest hutch.Seconds) (hutch.ExecRequest, error) {
	if len(c.Command) == 0 {
		return hutch.ExecRequest{}, hutch.Errorf(hutch.Invalid, "command: give a string or a list of strings").Because(errBody)
	}
	line := hutch.CommandLine(c.Command...)
	if c.Shell {
		line = "sh -c " + line
	}
	if c.Merge {
		line = "exec 2>&1; " + line
	}
	req := hutch.ExecRequest{Command: line, Env: c.Env, Timeout: longest, MaxOutput: maxStream}
	if c.Timeout != nil {
		req.Timeout = hutch.Seconds(max(*c.Timeout, 0.001)) // the service refuses a limit that is too long
	}
	if c.Dir != nil {
		req.Dir = *c.Dir
	}
	return req, req.Check()
}

type commandResult struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Code   int    `json:"exit_code"`
}

// resultOf describes the end of a command.
func resultOf(res hutch.ExecResult) commandResult {
	if res.Truncated {
		res.Stdout, res.Stderr = note(res.Stdout, res.Cuts[0]), note(res.Stderr, res.Cuts[1])
	}
	return commandResult{text(res.Stdout), text(res.Stderr), res.ExitCode}
}

// note marks where the middle of long output is missing.
func note(b []byte, cut int) []byte {
	if len(b) < maxStream || cut > len(b) {
		return b
	}
	return slices.Concat(b[:cut], []byte(leftOut), b[cut:])
}

func (h *Handler) execute(w http.ResponseWriter, r *http.Request, sandbox string) (any, error) {
	var c command
	if err := body(w, r, &c); err != nil {
		return nil, err
	}
	req, err := c.request(hutch.InSeconds(h.longest))
	if err != nil {
		return nil, err
	}
	var res hutch.ExecResult
	err = compat.OnFirstUse(r.Context(), h.svc, sandbox, func() (err error) {
		res, err = h.svc.Exec(r.Context(), sandbox, req, nil)
		if err != nil && !res.Timestamp.IsZero() {
			return throw(classOther, hutch.AsError(err).Message) // the command must not run again
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if res.TimedOut {
		return nil, throw(classTimeout, fmt.Sprintf("Timeout (%gs) exceeded while running command", float64(req.Timeout)))
	}
	done := resultOf(res)
	if c.Check && done.Code != 0 {
		return nil, c.failure(done)
	}
	return done, nil
}

// failure returns the exception of a command that failed.
func (c command) failure(done commandResult) error {
	message := fmt.Sprintf("Command %q failed with exit code %d. Stdout:\n%q\nStderr:\n%q", strings.Join(c.Command, " "), done.Code, done.Stdout, done.Stderr)
	if c.Message != "" {
		message = c.Message + ": " + message
	}
	return throw(classNonZero, message)
}

// text returns bytes as Python shows them with errors="backslashreplace".
func text(b []byte) string {
	s, _ := decodeText(b, "utf-8", "backslashreplace")
	return s
}
