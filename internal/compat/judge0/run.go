package judge0

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/compat"
)

// outcome is the state and the result of a submission.
type outcome struct {
	status                                 int
	stdout, stderr, compileOutput, message *string
	time, wall                             *time.Duration
	memory                                 *int // KB
	exitCode, signal                       *int
}

// bytes estimates the memory of an outcome.
func (o outcome) bytes() int {
	n := 0
	for _, text := range []*string{o.stdout, o.stderr, o.compileOutput, o.message} {
		if text != nil {
			n += len(*text)
		}
	}
	return n
}

const (
	compileTime   = 60  // s
	compileMemory = 512 // MiB: the compiler runs in the sandbox of the program
	minMemory     = 64  // MiB
	maxOutput     = 1 << 20
)

// judge runs a submission in its own sandbox.
func (h *Handler) judge(ctx context.Context, s *submission) (outcome, error) {
	if !compat.Take(ctx, 3*maxOutput) {
		return outcome{}, compat.ErrNoRoom
	}
	var o outcome
	box := hutch.CreateRequest{Limits: s.limits(), Network: hutch.Network{Mode: hutch.NetworkNone}}
	err := compat.Once(ctx, h.svc, h.log, box, compileTime*time.Second+s.request.limit(), func(sandbox string) (err error) {
		if _, err := h.svc.WriteFile(ctx, sandbox, hutch.WriteRequest{Path: s.language.file}, strings.NewReader(*s.request.Source)); err != nil {
			return err
		}
		compiled, err := h.compile(ctx, sandbox, s)
		if err != nil || compiled.status == compilation {
			o = compiled
			return err
		}
		o, err = h.run(ctx, sandbox, s)
		o.compileOutput = compiled.compileOutput
		return err
	})
	return o, err
}

// limits returns the limits of the sandbox.
func (s *submission) limits() hutch.Limits {
	memory := max(int(math.Ceil(float64(*s.request.Memory)/1024)), minMemory)
	if s.language.compile != "" {
		memory = max(memory, compileMemory)
	}
	// The shell, and the server's own program in the sandbox, are among the processes.
	return hutch.Limits{CPU: 1, Memory: memory, PIDs: int(math.Ceil(float64(*s.request.Processes))) + 32}
}

// mergeStreams sends stderr to stdout, inside the sandbox: two streams do not keep the order of the output.
const mergeStreams = "exec 2>&1\n"

// compile runs the compiler, if the language has one.
func (h *Handler) compile(ctx context.Context, sandbox string, s *submission) (outcome, error) {
	if s.language.compile == "" {
		return outcome{}, nil
	}
	out := &output{}
	req := hutch.ExecRequest{Command: mergeStreams + command(s.language.compile, s.request.Compiler), Timeout: compileTime, StreamOnly: true}
	res, err := h.svc.Exec(ctx, sandbox, req, out.add)
	if err != nil && !out.full {
		return outcome{}, err
	}
	o := outcome{compileOutput: optionalText(out.stdout)}
	if res.TimedOut {
		text := "Compilation time limit exceeded."
		o.compileOutput = &text
	}
	if res.ExitCode != 0 || res.TimedOut || out.full {
		o.status = compilation
	}
	return o, nil
}

// run runs the program.
func (h *Handler) run(ctx context.Context, sandbox string, s *submission) (outcome, error) {
	q := s.request
	req := hutch.ExecRequest{Timeout: hutch.Seconds(*q.Wall), StreamOnly: true, Stdin: strings.NewReader(value(q.Stdin))}
	if s.language.run == "" {
		req.Language, req.Command = s.language.name, *q.Source
	} else {
		req.Command = "exec " + command(s.language.run, q.Arguments)
		if q.merges() {
			req.Command = mergeStreams + req.Command
		}
		req.Command = q.ulimits() + req.Command
	}
	out := &output{}
	before := h.used(ctx, sandbox)
	res, err := h.svc.Exec(ctx, sandbox, req, out.add)
	if err != nil && !out.full {
		return outcome{}, err
	}
	after := h.used(ctx, sandbox)
	o := outcome{stdout: optionalText(out.stdout), stderr: optionalText(out.stderr), wall: &res.Duration}
	if cpu := time.Duration((after.CPUSeconds - before.CPUSeconds) * float64(time.Second)); cpu > 0 {
		o.time = &cpu
	}
	if after.MemoryPeak > 0 {
		kb := int(after.MemoryPeak * 1024)
		o.memory = &kb
	}
	o.verdict(q, res, out)
	return o, nil
}

// used returns the use of a sandbox, if it is known.
func (h *Handler) used(ctx context.Context, sandbox string) hutch.Usage {
	if h.accounts == nil {
		return hutch.Usage{}
	}
	report, err := h.accounts.Usage(ctx)
	i := slices.IndexFunc(report.Sandboxes, func(u hutch.Usage) bool { return u.SandboxID == sandbox })
	if err != nil || i < 0 {
		return hutch.Usage{}
	}
	return report.Sandboxes[i]
}

// verdict describes the end of a program, in Judge0's words.
func (o *outcome) verdict(q request, res hutch.ExecResult, out *output) {
	say := func(status, signal int, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		o.status, o.message = status, &text
		if signal > 0 {
			o.signal = &signal
		}
	}
	o.exitCode = &res.ExitCode
	signal := 0
	if unix.SignalName(unix.Signal(res.ExitCode-128)) != "" {
		signal = res.ExitCode - 128
	}
	limit := time.Duration(float64(*q.CPU) * float64(time.Second))
	switch {
	case out.full:
		o.exitCode = nil
		say(fileSize, int(unix.SIGXFSZ), "Caught fatal signal %d: the program wrote more than %d bytes", unix.SIGXFSZ, maxOutput)
	case res.TimedOut:
		o.exitCode = nil
		say(timeLimit, int(unix.SIGKILL), "Time limit exceeded (wall clock)")
	case o.time != nil && *o.time > limit || signal == int(unix.SIGXCPU):
		say(timeLimit, signal, "Time limit exceeded")
	case res.Limit == "memory":
		say(otherSignal, int(unix.SIGKILL), "Caught fatal signal %d: the memory limit is reached", unix.SIGKILL)
	case signal > 0:
		say(byNumber(unix.Signal(signal)), signal, "Caught fatal signal %d", signal)
	case res.ExitCode != 0:
		say(nonZero, 0, "Exited with error status %d", res.ExitCode)
	case q.Expected != nil && trim(*q.Expected) != trim(value(o.stdout)):
		o.status = wrongAnswer
	default:
		o.status = accepted
	}
}

// byNumber returns the status of a program that a signal killed.
func byNumber(signal unix.Signal) int {
	switch signal {
	case unix.SIGSEGV:
		return segmentation
	case unix.SIGXFSZ:
		return fileSize
	case unix.SIGFPE:
		return floatingPoint
	case unix.SIGABRT:
		return aborted
	}
	return otherSignal
}

// trim removes blanks that do not count when outputs are compared: at the end of lines and of the text.
func trim(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " \t\r\v\f\x00")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// ulimits returns shell commands that set the limits of one process. A limit that the sandbox cannot set is left
// unchanged.
func (q request) ulimits() string {
	seconds := int(math.Ceil(float64(*q.CPU + *q.Extra)))
	return fmt.Sprintf("{ ulimit -St %d; ulimit -s %d; ulimit -f %d; ulimit -c 0; } 2>/dev/null\n", max(seconds, 1), int(*q.Stack), int(*q.File))
}

func (q request) merges() bool { return q.Merge != nil && *q.Merge }

// limit returns the time limit of the run.
func (q request) limit() time.Duration { return time.Duration(float64(*q.Wall) * float64(time.Second)) }

func value(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// optionalText returns an output, or nil if it is empty.
func optionalText(b []byte) *string {
	if len(b) == 0 {
		return nil
	}
	text := string(b)
	return &text
}

var errTooLong = errors.New("the program wrote too much")

// output is the output of a program.
type output struct {
	stdout, stderr []byte
	full           bool
}

func (o *output) add(piece hutch.Output) error {
	stream := &o.stdout
	if piece.Stream == hutch.Stderr {
		stream = &o.stderr
	}
	data := piece.Data[:min(len(piece.Data), maxOutput-len(*stream))]
	*stream = append(*stream, data...)
	if len(data) < len(piece.Data) {
		o.full = true
		return errTooLong
	}
	return nil
}
