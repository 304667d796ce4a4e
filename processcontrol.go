package hutch

import (
	"context"
	"io"
	"strings"
)

// ProcessControl are the verbs on a running background process. A terminal is a background process with a Terminal:
// any number of viewers read its Logs from a cursor, and each of them can write to its Input.
type ProcessControl interface {
	// Input writes to a process's standard input, or its terminal. It returns when the kernel has accepted everything;
	// until then it waits for the program to read, or for ctx. With end, the input ends once no other caller writes to
	// it. A terminal's input cannot end, but byte 4, Ctrl-D, has the same effect. A process without an input is
	// Unsupported; an ended process, or one with a closed input, is Conflict.
	Input(ctx context.Context, sandbox, process string, r io.Reader, end bool) error

	// Resize changes the size of a process's terminal, and signals its programs.
	Resize(ctx context.Context, sandbox, process string, size Size) error

	// Wait waits until the requested event, the end of the process, or the timeout. None of the three is an error.
	Wait(ctx context.Context, sandbox, process string, req WaitRequest) (WaitResult, error)

	// CleanProcesses removes the records and output of ended processes, and returns their number.
	CleanProcesses(ctx context.Context, sandbox string) (int, error)

	// Languages lists the languages whose programs the sandbox has, by name. Each call looks again, so it finds newly
	// installed programs.
	Languages(ctx context.Context, sandbox string) ([]Language, error)
}

// MaxColumns and MaxRows bound a terminal.
const (
	MaxColumns = 1000
	MaxRows    = 1000
)

// Size is the size of a terminal, in characters.
type Size struct {
	Columns int `json:"columns"` // 1 to MaxColumns
	Rows    int `json:"rows"`    // 1 to MaxRows
}

// Check refuses an impossible size.
func (s Size) Check() error {
	if s.Columns < 1 || s.Columns > MaxColumns || s.Rows < 1 || s.Rows > MaxRows {
		return Errorf(Invalid, "a terminal of %d columns and %d rows: give 1 to %d columns and 1 to %d rows", s.Columns, s.Rows, MaxColumns, MaxRows)
	}
	return nil
}

// MaxPattern is the longest text or pattern to wait for, in bytes.
const MaxPattern = 1 << 10

// WaitRequest says what to wait for: a port, a line of output, the health of
// the process or, without any of them, its end.
type WaitRequest struct {
	// Port waits until a connection to this port on the sandbox's loopback succeeds. With Path, which begins with
	// "/", an HTTP GET of it must return Status or, if that is 0, any status from 200 to 399.
	Port   int    `json:"port,omitempty"`
	Path   string `json:"path,omitempty"`
	Status int    `json:"status,omitempty"`
	// Text or Pattern (RE2) waits until one line of the output matches, counted from Cursor. Text also matches an
	// unfinished line at once; Pattern matches it when no output has followed for a moment.
	Text    string `json:"text,omitempty"`
	Pattern string `json:"pattern,omitempty"`
	Cursor  int64  `json:"cursor,omitempty"`
	// Healthy waits until the process's health check has succeeded.
	Healthy bool `json:"healthy,omitempty"`
	// Timeout is the longest to wait; default 30, at most the server's maximum.
	Timeout Seconds `json:"timeout,omitempty"`
}

// Check refuses a request that no server can answer. Whether a pattern is a
// regular expression is found when it is compiled.
func (r WaitRequest) Check() error {
	things := 0
	for _, asked := range []bool{r.Port != 0, r.Text != "", r.Pattern != "", r.Healthy} {
		if asked {
			things++
		}
	}
	switch {
	case things > 1:
		return Errorf(Invalid, "give one of port, text, pattern and healthy, or none of them to wait for the end")
	case r.Port < 0 || r.Port > 65535:
		return Errorf(Invalid, "the port is %d: give 1 to 65535", r.Port).Naming(AboutField, "port")
	case r.Port == 0 && (r.Path != "" || r.Status != 0) || r.Path == "" && r.Status != 0:
		return Errorf(Invalid, "path needs a port, and status a path").Naming(AboutField, "path")
	case r.Path != "" && (r.Path[0] != '/' || len(r.Path) > 2048 || strings.ContainsFunc(r.Path, func(c rune) bool { return c <= ' ' || c >= 0x7f })):
		return Errorf(Invalid, "the path %.80q is none of a URL: it begins with / and has no blanks", r.Path).Naming(AboutField, "path")
	case r.Status != 0 && (r.Status < 100 || r.Status > 599):
		return Errorf(Invalid, "the status is %d: give 100 to 599", r.Status).Naming(AboutField, "status")
	case len(r.Text) > MaxPattern || len(r.Pattern) > MaxPattern:
		return Errorf(Invalid, "the text or pattern is over the limit of %d bytes", MaxPattern)
	case strings.ContainsAny(r.Text, "\r\n"):
		return Errorf(Invalid, "the text goes over several lines: wait for one line").Naming(AboutField, "text")
	case r.Cursor < 0:
		return Errorf(Invalid, "cursor is %d: give a number of bytes, from 0", r.Cursor).Naming(AboutField, "cursor")
	}
	return nil
}

// WaitResult says how waiting ended.
type WaitResult struct {
	Process Process `json:"process"`
	Met     bool    `json:"met"` // the requested event happened
	// Match is the matching line, at most 1 KiB of it.
	Match string `json:"match,omitempty"`
	// Cursor is where to continue waiting: after the matching text or line or, without a match, after all complete
	// lines.
	Cursor   int64 `json:"cursor,omitempty"`
	TimedOut bool  `json:"timedOut"`
	// Denied is as in ExecResult, for the time since the process started.
	Denied []string `json:"denied,omitempty"`
}

// Language is a language of a sandbox.
type Language struct {
	Name    string   `json:"name"`
	Aliases []string `json:"aliases"`
	Version string   `json:"version"` // as reported by the interpreter or compiler; can be empty
	// Contexts says whether code contexts support the language.
	Contexts bool `json:"contexts"`
}
