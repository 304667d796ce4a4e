package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"hutch"
)

type waitProcessArgs struct {
	SandboxID string         `json:"sandboxId"`
	ProcessID string         `json:"processId" jsonschema:"of startBackgroundProcess, or its name"`
	Stdin     string         `json:"stdin,omitempty" jsonschema:"text to write to its stdin first; end lines with a line feed"`
	EndStdin  bool           `json:"endStdin,omitempty" jsonschema:"end its stdin behind that"`
	Signal    int            `json:"signal,omitempty" jsonschema:"signal to send first: 2 interrupt, 15 terminate, 9 kill"`
	Text      string         `json:"text,omitempty" jsonschema:"wait until a line of the output from cursor on has this text"`
	Port      int            `json:"port,omitempty" jsonschema:"wait until this port accepts connections"`
	Timeout   *hutch.Seconds `json:"timeout,omitempty" jsonschema:"seconds to wait at most; 0 only looks; default 10"`
	Cursor    *int64         `json:"cursor,omitempty" jsonschema:"show the output from here on: the cursor of an earlier result; without it, the newest"`
}

// waitedProcess is the structured result of waitProcess.
type waitedProcess struct {
	SandboxID string              `json:"sandboxId"`
	ProcessID string              `json:"processId"`
	Status    hutch.ProcessStatus `json:"status"` // starting, running, exited or failed
	ExitCode  *int                `json:"exitCode,omitempty"`
	Met       bool                `json:"met"`              // the awaited condition was met
	Output    string              `json:"output"`           // stdout and stderr in order
	Cursor    int64               `json:"cursor"`           // where the next read continues
	More      bool                `json:"more"`             // there is more to read from cursor on
	Denied    []string            `json:"denied,omitempty"` // what the network denied since the process started, as rules for the tool network
}

// lookTime is the default length of a wait. It is shorter than the timeouts of clients.
const lookTime = 10 * time.Second

func (s *server) waitProcess(ctx context.Context, c *call, in waitProcessArgs) (reply, error) {
	c.sandbox = in.SandboxID
	for _, err := range []error{
		need("sandboxId", in.SandboxID, "the sandbox of the process"),
		need("processId", in.ProcessID, "the process's id, as getSandbox shows it"),
	} {
		if err != nil {
			return reply{}, err
		}
	}
	if !strings.HasPrefix(in.ProcessID, "p-") {
		id, err := s.processNamed(ctx, in.SandboxID, in.ProcessID)
		if err != nil {
			return reply{}, err
		}
		in.ProcessID = id
	}
	c.keepAlive()
	err := s.prod(ctx, in)
	var res hutch.WaitResult
	if err == nil {
		res, err = s.await(ctx, in)
	}
	if err != nil {
		return reply{}, s.ofProcess(ctx, in, err)
	}
	shown, err := s.newest(ctx, in)
	if err != nil {
		return reply{}, err
	}
	out := waitedProcess{
		SandboxID: in.SandboxID, ProcessID: in.ProcessID, Status: res.Process.Status, ExitCode: res.Process.ExitCode,
		Met: res.Met, Output: readable(shown.data), Cursor: shown.cursor, More: shown.more, Denied: res.Denied,
	}
	return reply{out.words(shown), out}, nil
}

// processNamed returns the id of the process with a name: a running process or, if none is running, the newest one.
func (s *server) processNamed(ctx context.Context, sandbox, name string) (id string, err error) {
	list, err := s.svc.Processes(ctx, sandbox)
	if err != nil {
		return "", err
	}
	live := 0
	for _, p := range list {
		switch {
		case p.ID == name:
			return p.ID, nil
		case p.Name != name:
		case p.Status.Live():
			id, live = p.ID, live+1
		case live == 0:
			id = p.ID
		}
	}
	switch {
	case live > 1:
		return "", hutch.Errorf(hutch.Conflict, "%d running processes have the name %.80q: give the processId of one", live, name).
			Naming(hutch.AboutProcess, name).With("processes", briefProcesses(list))
	case id == "":
		return "", noProcess(sandbox, name, list)
	}
	return id, nil
}

// ofProcess returns an error that says whether the process or the sandbox is missing.
func (s *server) ofProcess(ctx context.Context, in waitProcessArgs, err error) error {
	if hutch.KindOf(err) != hutch.NotFound {
		return err
	}
	list, failed := s.svc.Processes(ctx, in.SandboxID)
	if failed != nil {
		return err
	}
	return noProcess(in.SandboxID, in.ProcessID, list)
}

func noProcess(sandbox, process string, list []hutch.Process) error {
	return hutch.Errorf(hutch.NotFound, "there is no process %.80q in the sandbox %q: use the processId or the name of one that it has", process, sandbox).
		Naming(hutch.AboutProcess, process).With("processes", briefProcesses(list))
}

// briefProcesses lists the newest processes of a sandbox for an error.
func briefProcesses(list []hutch.Process) []map[string]any {
	all := []map[string]any{}
	for _, p := range list[max(0, len(list)-maxListed):] {
		all = append(all, map[string]any{"processId": p.ID, "name": p.Name, "status": p.Status})
	}
	return all
}

// prod writes the requested input to the process and sends the requested signal, before the wait.
func (s *server) prod(ctx context.Context, in waitProcessArgs) error {
	if in.Stdin != "" || in.EndStdin {
		ctx, cancel := context.WithTimeoutCause(ctx, lookTime, hutch.Errorf(hutch.Timeout,
			"the process %s has not read its stdin for %s: wait for it with waitProcess, and write then", in.ProcessID, length(lookTime)))
		defer cancel()
		if err := s.svc.Input(ctx, in.SandboxID, in.ProcessID, strings.NewReader(in.Stdin), in.EndStdin); err != nil {
			return err
		}
	}
	if in.Signal != 0 {
		return s.svc.Signal(ctx, in.SandboxID, in.ProcessID, in.Signal)
	}
	return nil
}

func (s *server) await(ctx context.Context, in waitProcessArgs) (hutch.WaitResult, error) {
	req := hutch.WaitRequest{Text: in.Text, Port: in.Port, Timeout: hutch.InSeconds(lookTime)}
	if in.Text != "" && in.Cursor != nil {
		req.Cursor = *in.Cursor
	}
	if in.Timeout != nil {
		req.Timeout = *in.Timeout
	}
	if req.Timeout != 0 {
		return s.svc.Wait(ctx, in.SandboxID, in.ProcessID, req)
	}
	p, err := s.svc.Process(ctx, in.SandboxID, in.ProcessID)
	return hutch.WaitResult{Process: p, Met: !p.Status.Live()}, err
}

// excerpted is a part of a process's output.
type excerpted struct {
	data   []byte
	cursor int64
	lost   int64 // dropped bytes between the requested cursor and data
	more   bool
}

var errFull = errors.New("enough")

// newest reads at most maxShown bytes of output: from the cursor on or, without a cursor, the last ones.
func (s *server) newest(ctx context.Context, in waitProcessArgs) (excerpted, error) {
	req := hutch.LogsRequest{SandboxID: in.SandboxID, ProcessID: in.ProcessID}
	if in.Cursor != nil {
		req.Cursor = *in.Cursor
	}
	e := excerpted{cursor: req.Cursor}
	cursor, err := s.svc.Logs(ctx, req, func(o hutch.Output) error {
		if in.Cursor == nil {
			e.data = append(e.data, o.Data...)
			over := max(0, len(e.data)-maxShown)
			e.data, e.lost = append(e.data[:0], e.data[over:]...), e.lost+int64(over)+o.Lost
			return nil
		}
		e.lost += o.Lost
		take := min(len(o.Data), maxShown-len(e.data))
		if o.Redacted { // a cursor cannot point into redacted output
			take = len(o.Data)
		}
		e.data = append(e.data, o.Data[:take]...)
		e.cursor = o.Cursor - int64(len(o.Data)-take)
		if take < len(o.Data) {
			e.more = true
			return errFull
		}
		return nil
	})
	if errors.Is(err, errFull) {
		return e, nil
	}
	e.cursor = cursor
	return e, err
}

// words describes the state of the process and how to continue.
func (p waitedProcess) words(e excerpted) string {
	var b strings.Builder
	fmt.Fprintf(&b, "process %s is %s", p.ProcessID, p.Status)
	if p.ExitCode != nil {
		fmt.Fprintf(&b, " with exit code %d", *p.ExitCode)
	}
	if !p.Met {
		b.WriteString("; what you waited for has not come")
	}
	fmt.Fprintf(&b, " · cursor %d\n", p.Cursor)
	if e.lost > 0 {
		fmt.Fprintf(&b, "[… %d bytes before this are left out …]\n", e.lost)
	}
	b.WriteString(p.Output)
	switch {
	case p.More:
		fmt.Fprintf(&b, "\n[there is more: call waitProcess with cursor %d]", p.Cursor)
	case p.Output == "":
		b.WriteString("[no output]")
	}
	if denied := deniedWords(p.SandboxID, p.Denied); denied != "" {
		b.WriteString("\n" + denied)
	}
	return b.String()
}
