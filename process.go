package hutch

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxCommand is the longest command or source text, in bytes.
const MaxCommand = 1 << 20

const (
	// MaxOutput is the most bytes that a result keeps of each of stdout and stderr.
	MaxOutput = 16 << 20
	// DefaultOutput is how many bytes a result keeps by default.
	DefaultOutput = 1 << 20
)

// ExecGrace is how long a resumable command runs while no client reads its output, and how long its result is kept.
const ExecGrace = time.Minute

// MaxResumable is the highest number of resumable commands of a sandbox, both running and kept after their end.
const MaxResumable = 16

// CommandLine returns a command line that a shell reads as exactly these words.
func CommandLine(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// These command lines start the shell of an image: bash, or sh in an image without bash.
const (
	ImageShell      = "command -v bash >/dev/null && exec bash; exec sh"
	ImageLoginShell = "command -v bash >/dev/null && exec bash -l; exec sh -l"
)

// ExecRequest asks for one command, and waits for it.
type ExecRequest struct {
	// Command is a bash command line or, with Language, source text.
	Command  string `json:"command"`
	Language string `json:"language,omitempty"`
	// Args are the program's arguments; in a command line they are $1, $2 ...
	Args []string          `json:"args,omitempty"`
	Dir  string            `json:"cwd,omitempty"` // default /workspace
	Env  map[string]string `json:"env,omitempty"`
	// User is the user of the command, as in CreateRequest; default: the sandbox's user.
	User string `json:"user,omitempty"`
	// Secrets are as in CreateRequest, for this command.
	Secrets []string `json:"secrets,omitempty"`
	// Timeout ends the whole process tree; default 30, and at most the
	// server's maximum.
	Timeout Seconds `json:"timeout,omitempty"`
	// MaxOutput is how many bytes of each of stdout and stderr the result keeps: the first and the last half. Default 1
	// MiB, at most 16 MiB. The caller's output function always gets everything.
	MaxOutput int `json:"maxOutput,omitempty"`
	// StreamOnly leaves Stdout and Stderr out of the result, for a caller that reads them with its output function:
	// then no output is kept.
	StreamOnly bool `json:"-"`
	// SessionID names the code context to run in, with the state of earlier runs. A missing context is created, in
	// Language or else in bash. See [Contexts].
	SessionID string `json:"sessionId,omitempty"`
	// Resumable keeps the command running for [ExecGrace] after the call has ended, so that ResumeExec can continue
	// where the call was interrupted.
	Resumable bool `json:"resumable,omitempty"`
	// Started, when set, is called with the id of a resumable command before
	// its first output.
	Started func(exec string) `json:"-"`
	// Stdin is the command's standard input; nil is an empty one.
	Stdin io.Reader `json:"-"`
}

// Check refuses a request that no server can answer.
func (r ExecRequest) Check() error {
	if r.SessionID != "" && len(r.Args) > 0 {
		return Errorf(Invalid, "a session takes no args: write them into the command").Naming(AboutField, "args")
	}
	if r.SessionID != "" && r.User != "" {
		return Errorf(Invalid, "a session has the user that it was created with: create it with that user first, and leave user out here").Naming(AboutField, "user")
	}
	return cmp.Or(
		checkProgram(r.Command, r.Dir, r.Env, r.Secrets), checkArgs(r.Args), checkMaxOutput(r.MaxOutput), checkOptionalID(r.SessionID), checkOptionalUser(r.User),
	)
}

// Stream is the stream that output came from.
type Stream string

const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Output is a piece of output, byte-exact, in the order it was read.
type Output struct {
	Stream Stream
	Data   []byte // valid only during the call that passes it
	// Cursor is the position after Data in the process's whole output, in bytes. Reading from there continues without
	// a gap.
	Cursor int64
	// Lost is how many bytes before Data were dropped before they could be read.
	Lost int64
	// Time is the latest time at which Data can have been read from the process; zero if the reader did not ask for
	// times.
	Time time.Time
	// Redacted says that a secret in Data, or before it, was replaced, so the length differs from what the process
	// wrote. Cursor counts the bytes that the process wrote.
	Redacted bool
}

// ExecResult is how a command ended. A non-zero exit code is a result, not an
// error.
type ExecResult struct {
	SandboxID string
	Command   string
	// ExitCode is the exit code from the kernel; 128+n for death by signal n. After a time limit it is 137, also in a
	// session that continues.
	ExitCode  int
	Stdout    []byte
	Stderr    []byte
	Duration  time.Duration
	Timestamp time.Time // when it started
	TimedOut  bool      // the time limit killed it
	Truncated bool      // the middle of Stdout or Stderr is missing
	// CompileError says that the source text did not compile: no program ran,
	// Stderr has the compiler's messages and ExitCode is the compiler's.
	CompileError bool
	// Limit names the limit of the sandbox that killed the command ("memory"), or that made it fail: "disk" if the command
	// says that no space is left, and the disk is full; "pids" if it says that it cannot fork. Otherwise it is empty.
	Limit string
	// Denied lists what the sandbox's network denied while the command ran, as the rules that would have allowed it,
	// such as "example.com": at most MaxDenied, the newest last. Attempts of other programs in the sandbox are
	// included.
	Denied []string
	// Cuts are the positions in Stdout and in Stderr at which the middle is missing, if Truncated. They are not on the
	// wire.
	Cuts [2]int
}

// MaxDenied bounds the denied hosts in a result.
const MaxDenied = 10

// Success reports whether the command ran to its end and exited with 0.
func (r ExecResult) Success() bool { return r.ExitCode == 0 && !r.TimedOut && r.Limit == "" }

// execResultJSON is ExecResult on the wire. Stdout and stderr are strings. If either is not UTF-8, or full of control
// characters, both are base64 and encoding says so, so that a client gets every byte.
type execResultJSON struct {
	Success   bool      `json:"success"`
	ExitCode  int       `json:"exitCode"`
	Stdout    string    `json:"stdout"`
	Stderr    string    `json:"stderr"`
	Encoding  string    `json:"encoding"` // "utf-8" or "base64"
	Command   string    `json:"command"`
	Duration  int64     `json:"duration"` // ms
	Timestamp time.Time `json:"timestamp"`
	TimedOut  bool      `json:"timedOut"`
	Truncated bool      `json:"truncated"`
	Compile   bool      `json:"compileError,omitempty"`
	Limit     string    `json:"limitExceeded,omitempty"`
	Denied    []string  `json:"denied,omitempty"`
	SandboxID string    `json:"sandboxId"`
}

func (r ExecResult) MarshalJSON() ([]byte, error) {
	j := execResultJSON{
		Success: r.Success(), ExitCode: r.ExitCode,
		Command: r.Command, Duration: r.Duration.Milliseconds(), Timestamp: r.Timestamp,
		TimedOut: r.TimedOut, Truncated: r.Truncated, Compile: r.CompileError, Limit: r.Limit, Denied: r.Denied, SandboxID: r.SandboxID,
	}
	j.Stdout, j.Stderr, j.Encoding = encodeOutput(r.Stdout, r.Stderr)
	return json.Marshal(j)
}

func (r *ExecResult) UnmarshalJSON(b []byte) error {
	var j execResultJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*r = ExecResult{
		SandboxID: j.SandboxID, Command: j.Command, ExitCode: j.ExitCode,
		Duration: time.Duration(j.Duration) * time.Millisecond, Timestamp: j.Timestamp,
		TimedOut: j.TimedOut, Truncated: j.Truncated, CompileError: j.Compile, Limit: j.Limit, Denied: j.Denied,
	}
	var err error
	r.Stdout, r.Stderr, err = decodeOutput(j.Stdout, j.Stderr, j.Encoding)
	return err
}

// encodeOutput returns output as JSON contains it: as strings or, if either is not UTF-8 or would grow too much, both
// as base64, so that every byte arrives.
func encodeOutput(stdout, stderr []byte) (out, err, encoding string) {
	if utf8.Valid(stdout) && utf8.Valid(stderr) && !growsAsJSON(stdout) && !growsAsJSON(stderr) {
		return string(stdout), string(stderr), "utf-8"
	}
	return base64.StdEncoding.EncodeToString(stdout), base64.StdEncoding.EncodeToString(stderr), "base64"
}

// growsAsJSON reports whether b as a JSON string would take a MiB and more than twice its length: an escape such as \u0000
// takes six bytes for one.
func growsAsJSON(b []byte) bool {
	if len(b) < 1<<20/5 {
		return false
	}
	escapes := 0
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' || c == '<' || c == '>' || c == '&' {
			escapes++
		}
	}
	return 5*escapes > max(len(b), 1<<20)
}

// decodeOutput undoes encodeOutput.
func decodeOutput(out, errs, encoding string) (stdout, stderr []byte, err error) {
	if encoding != "base64" {
		return []byte(out), []byte(errs), nil
	}
	if stdout, err = base64.StdEncoding.DecodeString(out); err != nil {
		return stdout, nil, fmt.Errorf("stdout: %w", err)
	}
	if stderr, err = base64.StdEncoding.DecodeString(errs); err != nil {
		return stdout, stderr, fmt.Errorf("stderr: %w", err)
	}
	return stdout, stderr, nil
}

// RestartPolicy says when an ended background process is started again.
type RestartPolicy string

const (
	RestartNever     RestartPolicy = "never"
	RestartOnFailure RestartPolicy = "on-failure" // after a non-zero exit code
	RestartAlways    RestartPolicy = "always"
)

// ProcessStatus is the state of a background process.
type ProcessStatus string

const (
	ProcessStarting ProcessStatus = "starting" // also while it waits for a restart
	ProcessRunning  ProcessStatus = "running"
	ProcessExited   ProcessStatus = "exited" // with exit code 0
	ProcessFailed   ProcessStatus = "failed" // it did not start, exited with another code, or was killed
)

// Live reports whether the process runs or will run.
func (s ProcessStatus) Live() bool { return s == ProcessStarting || s == ProcessRunning }

// ProcessRequest asks for a background process. The process outlives the connection that asked for it and ends with
// its sandbox.
type ProcessRequest struct {
	Command       string            `json:"command,omitempty"`
	Name          string            `json:"name,omitempty"` // for people; 1-63 printable characters, not necessarily unique
	Dir           string            `json:"cwd,omitempty"`
	Env           map[string]string `json:"env,omitempty"`
	User          string            `json:"user,omitempty"`          // as in CreateRequest; default: the sandbox's user
	Secrets       []string          `json:"secrets,omitempty"`       // as in CreateRequest, for this process
	RestartPolicy RestartPolicy     `json:"restartPolicy,omitempty"` // default never
	// Stdin keeps the standard input open, so that [ProcessControl] can write to it. Otherwise the input is empty.
	Stdin bool `json:"openStdin,omitempty"`
	// Terminal, when set, gives the process a terminal of that size instead of pipes, with TERM=xterm-256color unless
	// Env sets another. All its output is then Stdout. It has an input, and is not restarted.
	Terminal *Size `json:"terminal,omitempty"`
	// Entrypoint runs the program that the sandbox's image names, its ENTRYPOINT and CMD, in place of Command. The
	// image's STOPSIGNAL and HEALTHCHECK apply unless they are set here.
	Entrypoint bool `json:"entrypoint,omitempty"`
	Care
}

// Check refuses a request that no server can answer.
func (r ProcessRequest) Check() error {
	command := r.Command
	switch {
	case r.Entrypoint && command != "":
		return Errorf(Invalid, "entrypoint runs the program of the image: leave out command, or entrypoint").Naming(AboutField, "entrypoint")
	case r.Entrypoint:
		command = "of the image"
	}
	if err := cmp.Or(checkProgram(command, r.Dir, r.Env, r.Secrets), checkProcessName(r.Name), checkOptionalUser(r.User), r.Care.check()); err != nil {
		return err
	}
	switch r.RestartPolicy {
	case "", RestartNever, RestartOnFailure, RestartAlways:
	default:
		return Errorf(Invalid, "restartPolicy is %q: use never, on-failure or always", r.RestartPolicy)
	}
	switch {
	case r.Terminal == nil:
		return nil
	case r.RestartPolicy != "" && r.RestartPolicy != RestartNever:
		return Errorf(Invalid, "a process with a terminal is not restarted: leave restartPolicy out").Naming(AboutField, "restartPolicy")
	}
	return r.Terminal.Check()
}

func checkProcessName(name string) error {
	if len(name) > MaxID {
		return Errorf(Invalid, "the name has %d bytes: at most %d are allowed", len(name), MaxID)
	}
	for _, r := range name {
		if steers(r) || r == utf8.RuneError {
			return Errorf(Invalid, "the name %q holds a character that cannot be printed", name)
		}
	}
	return nil
}

// CheckSignal refuses a number that no signal has.
func CheckSignal(signal int) error {
	if signal < 1 || signal > 64 {
		return Errorf(Invalid, "signal is %d: give 1 to 64, 15 to ask a process to end, 9 to kill it", signal)
	}
	return nil
}

// Process is the record of one background process at one moment.
type Process struct {
	ID            string         `json:"processId"`
	SandboxID     string         `json:"sandboxId"`
	Name          string         `json:"name"`
	Command       string         `json:"command"`
	Status        ProcessStatus  `json:"status"`
	PID           int            `json:"pid"` // inside the sandbox; 0 when the process does not run
	ExitCode      *int           `json:"exitCode,omitempty"`
	Signal        int            `json:"signal,omitempty"` // signal that ended it; 0 for none
	StartTime     time.Time      `json:"startTime"`
	EndTime       *time.Time     `json:"endTime,omitempty"`
	RestartPolicy RestartPolicy  `json:"restartPolicy"`
	Restarts      int            `json:"restarts"`
	Terminal      *Size          `json:"terminal,omitempty"`   // its current size
	StopSignal    int            `json:"stopSignal,omitempty"` // as requested
	Health        *ProcessHealth `json:"health,omitempty"`     // set for a process with a health check
}

// LogsRequest asks for the output of a background process.
type LogsRequest struct {
	SandboxID string
	ProcessID string
	// Cursor is where to start, in bytes of the process's whole output; 0 is the oldest kept byte.
	// A cursor after the end counts as the end, so that math.MaxInt64 asks how much there is.
	Cursor int64
	// Follow waits for more output until the process has ended for good or the context is done.
	Follow bool
	// Since skips output from before that time. Times of very long output are coarse, so slightly older output can be
	// included.
	Since time.Time
	// Times sets [Output.Time].
	Times bool
}

// Check refuses a request that no server can answer.
func (r LogsRequest) Check() error { return CheckCursor(r.Cursor) }

// CheckCursor refuses a cursor that is not a position in output.
func CheckCursor(cursor int64) error {
	if cursor < 0 {
		return Errorf(Invalid, "cursor is %d: give a number of bytes, from 0", cursor)
	}
	return nil
}
