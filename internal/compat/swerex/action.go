package swerex

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	"hutch"
)

const (
	maxExpect  = 32
	maxRetries = 20
	// maxSteps bounds the patterns of an action together: about how many steps they take for each byte of output.
	maxSteps = 1000

	interruptTime = 200 * time.Millisecond // between two attempts
)

// action is one request of run_in_session: a command or an interrupt.
type action struct {
	Type    string   `json:"action_type"` // "bash" or "bash_interrupt"
	Session string   `json:"session"`
	Timeout *float64 `json:"timeout"`
	Expect  []string `json:"expect"`

	Command     string `json:"command"`
	Interactive bool   `json:"is_interactive_command"`
	Quit        bool   `json:"is_interactive_quit"`
	Check       string `json:"check"` // raise, silent or ignore
	Message     string `json:"error_msg"`

	Retries *int `json:"n_retry"`
}

// observation is how an action ended.
type observation struct {
	Output  string `json:"output"`
	Code    *int   `json:"exit_code"`
	Failure string `json:"failure_reason"`
	Expect  string `json:"expect_string"`
	Type    string `json:"session_type"`
}

func (h *Handler) runInSession(w http.ResponseWriter, r *http.Request, sandbox string) (any, error) {
	ctx := r.Context()
	a := action{Type: "bash", Session: "default", Check: "raise"}
	if err := body(w, r, &a); err != nil {
		return nil, err
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	patterns, err := a.patterns()
	if err != nil {
		return nil, err
	}
	usual := h.longest
	if a.Type == "bash_interrupt" {
		usual = interruptTime
	}
	limit, err := h.limit(a.Timeout, usual)
	if err != nil {
		return nil, err
	}
	p, err := h.existing(ctx, sandbox, a.Session)
	if err != nil {
		return nil, err
	}
	sh, err := h.shells.take(ctx, h.svc, sandbox, p.ID)
	if err != nil {
		return nil, err
	}
	defer h.shells.release(sh)
	switch {
	case a.Type == "bash_interrupt":
		return sh.interrupt(ctx, a, patterns, limit)
	case a.Interactive || a.Quit:
		return sh.converse(ctx, a, patterns, limit)
	}
	if err := h.checkSyntax(ctx, sandbox, a.Command); err != nil {
		return nil, err
	}
	return sh.run(ctx, a, patterns, limit)
}

// check refuses a request that no server could do.
func (a action) check() error {
	wrong := ""
	switch {
	case a.Type != "bash" && a.Type != "bash_interrupt":
		wrong = "action_type is bash or bash_interrupt"
	case a.Check != "raise" && a.Check != "silent" && a.Check != "ignore":
		wrong = "check is silent, raise or ignore"
	case len(a.Expect) > maxExpect:
		wrong = fmt.Sprintf("expect has at most %d patterns", maxExpect)
	case len(a.Command) > hutch.MaxCommand:
		wrong = fmt.Sprintf("the command is over the limit of %d bytes", hutch.MaxCommand)
	case a.Retries != nil && (*a.Retries < 0 || *a.Retries > maxRetries):
		wrong = fmt.Sprintf("n_retry is 0 to %d", maxRetries)
	default:
		return nil
	}
	return hutch.Errorf(hutch.Invalid, "%s", wrong).Because(errBody)
}

// patterns compiles the patterns of the action. Their total size is small, because programs choose the output that is
// searched.
func (a action) patterns() (list []*regexp.Regexp, err error) {
	left := maxSteps
	for _, text := range a.Expect {
		if len(text) > hutch.MaxPattern {
			return nil, hutch.Errorf(hutch.Invalid, "expect: a pattern has %d bytes, over the limit of %d", len(text), hutch.MaxPattern).Because(errBody)
		}
		tree, err := syntax.Parse(text, syntax.Perl|syntax.DotNL)
		if err != nil {
			return nil, hutch.Errorf(hutch.Invalid, "expect: %.80q is not a pattern in the syntax of RE2", text).Because(errBody)
		}
		if left -= steps(tree); left < 0 {
			return nil, hutch.Errorf(hutch.Invalid, "expect: the patterns are too complex: use fewer and smaller repetitions").Because(errBody)
		}
		re, err := regexp.Compile("(?s)" + text)
		if err != nil {
			return nil, hutch.Errorf(hutch.Invalid, "expect: %.80q is not a pattern in the syntax of RE2", text).Because(errBody)
		}
		list = append(list, re)
	}
	return list, nil
}

// steps estimates the number of instructions of a pattern, never much too low. It does not expand repetitions to count
// them.
func steps(re *syntax.Regexp) int {
	n := 1
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		n += steps(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, 2*maxSteps)
}

// withPrompt adds the prompt to the patterns of an action.
func withPrompt(patterns []*regexp.Regexp) []*regexp.Regexp {
	return append(slices.Clone(patterns), promptPattern)
}

var promptPattern = regexp.MustCompile(prompt)

// checkSyntax refuses a command that bash cannot parse.
func (h *Handler) checkSyntax(ctx context.Context, sandbox, command string) error {
	res, err := h.svc.Exec(ctx, sandbox, hutch.ExecRequest{Command: "exec bash -n", Stdin: strings.NewReader(command + "\n"), MaxOutput: 64 << 10}, nil)
	if err != nil || res.Success() || res.TimedOut {
		return err
	}
	return &exception{
		class:   classSyntax,
		message: fmt.Sprintf("Error (exit code %d) while checking bash command \n%q\n---- Stderr ----\n%s\n---- Stdout ----\n%s", res.ExitCode, command, text(res.Stderr), text(res.Stdout)),
		extra:   map[string]string{"bash_stdout": text(res.Stdout), "bash_stderr": text(res.Stderr)},
	}
}

// failure returns the exception of a command that failed.
func (a action) failure(code int, output string) error {
	message := fmt.Sprintf("Command %q failed with exit code %d. Here is the output:\n%q", a.Command, code, output)
	if a.Message != "" {
		message = a.Message + ": " + message
	}
	return throw(classNonZero, message)
}

// late returns the exception of an action that took too long, and other errors unchanged.
func (a action) late(err error, limit time.Duration) error {
	if errors.Is(err, errLate) {
		return throw(classTimeout, fmt.Sprintf("timeout after %g seconds while running command %q", limit.Seconds(), a.Command))
	}
	return err
}
