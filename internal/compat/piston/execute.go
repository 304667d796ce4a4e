package piston

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/compat"
)

// stage is how the compiler or the program ended.
type stage struct {
	Stdout  string  `json:"stdout"`
	Stderr  string  `json:"stderr"`
	Output  string  `json:"output"` // both, in the order of the output
	Code    *int    `json:"code"`
	Signal  *string `json:"signal"`
	Message *string `json:"message"`
	Status  *string `json:"status"`
	CPU     *int64  `json:"cpu_time"` // not known
	Wall    int64   `json:"wall_time"`
	Memory  *int64  `json:"memory"` // not known
}

// result is the answer of execute.
type result struct {
	Language string `json:"language"`
	Version  string `json:"version"`
	Run      stage  `json:"run"`
	Compile  *stage `json:"compile,omitempty"`
}

func (h *Handler) execute(w http.ResponseWriter, r *http.Request) (any, error) {
	var j job
	if err := compat.ReadJSON(w, r, &j); err != nil {
		return nil, err
	}
	if err := j.check(h.longest); err != nil {
		return nil, err
	}
	list, err := h.runtimes(r.Context())
	if err != nil {
		return nil, err
	}
	rt, err := choose(list, j.Language, j.Version)
	if err != nil {
		return nil, err
	}
	return h.run(r.Context(), rt, j)
}

// run runs a job in its own sandbox, without network.
func (h *Handler) run(ctx context.Context, rt runtime, j job) (any, error) {
	out := &output{}
	req := hutch.ExecRequest{
		Language: rt.Language, Command: *j.Files[j.main()].Content, Args: j.Args, Timeout: j.limit(rt.Language), Stdin: strings.NewReader(j.input()), StreamOnly: true,
	}
	if err := req.Check(); err != nil {
		return nil, err
	}
	if !compat.Take(ctx, 3*maxOutput) {
		return nil, compat.ErrNoRoom
	}
	box := hutch.CreateRequest{Limits: hutch.Limits{CPU: 1, Memory: j.memory()}, Network: hutch.Network{Mode: hutch.NetworkNone}}
	var res hutch.ExecResult
	err := compat.Once(ctx, h.svc, h.log, box, req.Timeout.Duration(), func(sandbox string) (err error) {
		if err := h.write(ctx, sandbox, j); err != nil {
			return err
		}
		res, err = h.svc.Exec(ctx, sandbox, req, out.add)
		return err
	})
	if err != nil && out.full == "" {
		return nil, err
	}
	answer := result{Language: rt.Language, Version: rt.Version, Run: out.stage(res)}
	if res.CompileError && out.full == "" {
		answer.Compile = &answer.Run // and Run, for clients that know no compile stage
	}
	return answer, nil
}

// write writes the other files next to the program.
func (h *Handler) write(ctx context.Context, sandbox string, j job) error {
	for i, f := range j.Files {
		if i == j.main() {
			continue
		}
		b, err := f.bytes()
		if err != nil {
			return err
		}
		if _, err := h.svc.WriteFile(ctx, sandbox, hutch.WriteRequest{Path: j.name(i), Parents: true}, strings.NewReader(string(b))); err != nil {
			return err
		}
	}
	return nil
}

// maxOutput is how many bytes a program can write to stdout, and to stderr. If it writes more, it is killed, as in
// Piston.
const maxOutput = 1 << 20

var errFull = errors.New("the program wrote too much")

// output is the output of a program.
type output struct {
	stdout, stderr, all strings.Builder
	full                string // the stream that exceeded its limit, or empty
}

func (o *output) add(piece hutch.Output) error {
	stream := &o.stdout
	if piece.Stream == hutch.Stderr {
		stream = &o.stderr
	}
	data := piece.Data[:min(len(piece.Data), maxOutput-stream.Len())]
	stream.Write(data)
	o.all.Write(data)
	if len(data) < len(piece.Data) {
		o.full = string(piece.Stream)
		return errFull
	}
	return nil
}

// stage describes the end of a program in Piston's words.
func (o *output) stage(res hutch.ExecResult) stage {
	s := stage{Stdout: valid(&o.stdout), Stderr: valid(&o.stderr), Output: valid(&o.all), Wall: res.Duration.Milliseconds(), Code: &res.ExitCode}
	say := func(status, signal, message string) {
		s.Status, s.Message = &status, &message
		if signal != "" {
			s.Signal, s.Code = &signal, nil
		}
	}
	signal := unix.Signal(res.ExitCode - 128)
	switch {
	case o.full == string(hutch.Stderr):
		say("EL", "SIGKILL", "stderr length exceeded")
	case o.full != "":
		say("OL", "SIGKILL", "stdout length exceeded")
	case res.TimedOut:
		say("TO", "SIGKILL", "Time limit exceeded (wall clock)")
	case res.Limit == "memory":
		say("SG", "SIGKILL", "Caught fatal signal 9: the memory limit is reached")
	case unix.SignalName(signal) != "":
		say("SG", unix.SignalName(signal), fmt.Sprintf("Caught fatal signal %d", signal))
	case res.ExitCode != 0:
		say("RE", "", fmt.Sprintf("Exited with error status %d", res.ExitCode))
	}
	return s
}

func valid(b *strings.Builder) string { return strings.ToValidUTF8(b.String(), "\ufffd") }
