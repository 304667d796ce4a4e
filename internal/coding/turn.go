package coding

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"hutch"
)

// timedOut is the exit code of timeout(1) when the time is over; killed that of a program that had to be killed.
const (
	timedOut = 124
	killed   = 128 + 9
)

// Prompt gives the agent something to do, and returns when it has done it. If ctx ends, the agent is ended, too. To be
// left, it is given to [Session.Start] and [Session.Follow].
func (s *Session) Prompt(ctx context.Context, text string, timeout time.Duration, show func(Event) error) (hutch.AgentResult, error) {
	process, err := s.Start(ctx, text, timeout)
	if err != nil {
		return hutch.AgentResult{}, err
	}
	res, err := s.Follow(ctx, process, show)
	if err != nil {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		s.svc.Signal(last, s.ID, process, 15)
	}
	return res, err
}

// Start gives the agent something to do, and returns the id of its process. There is one at a time.
func (s *Session) Start(ctx context.Context, text string, timeout time.Duration) (string, error) {
	if err := (hutch.AgentPrompt{Prompt: text}).Check(); err != nil {
		return "", err
	}
	if s.definition.Command == "" {
		return "", hutch.Errorf(hutch.NotFound, "the session %s is of the agent %s, which is one of your own: give its definition, too", s.ID, s.definition.Name).Naming(hutch.AboutField, "definition")
	}
	earlier, err := s.processes(ctx)
	if err != nil {
		return "", err
	}
	command := s.definition.Command
	if s.definition.Resume != "" {
		// The list of processes does not outlive a sandbox that is kept without its memory; the last prompt's file does.
		switch _, err := s.svc.Stat(ctx, s.ID, prompt); {
		case err == nil:
			command = s.definition.Resume
		case !errors.Is(err, hutch.NotFound):
			return "", err
		}
	}
	for _, p := range earlier {
		if p.Status.Live() {
			return "", hutch.Errorf(hutch.Conflict, "the agent of %s is at work: wait for it with `hutch agent attach %[1]s`, or end it with `hutch agent stop %[1]s`", s.ID).Naming(hutch.AboutSandbox, s.ID)
		}
	}
	if _, err := s.svc.WriteFile(ctx, s.ID, hutch.WriteRequest{Path: prompt, Mode: 0o600, Parents: true}, strings.NewReader(text)); err != nil {
		return "", err
	}
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	seconds := fmt.Sprint(math.Ceil(timeout.Seconds()))
	p, err := s.svc.StartProcess(ctx, s.ID, hutch.ProcessRequest{
		Name: processName, Dir: Folder,
		Command: "exec timeout -k 5 " + seconds + " bash -c " + hutch.CommandLine(command) + " <" + prompt,
	})
	return p.ID, err
}

// processes are those of the prompts, oldest first.
func (s *Session) processes(ctx context.Context) ([]hutch.Process, error) {
	list, err := s.svc.Processes(ctx, s.ID)
	return slices.DeleteFunc(list, func(p hutch.Process) bool { return p.Name != processName }), err
}

// Last returns the process of the last prompt.
func (s *Session) Last(ctx context.Context) (hutch.Process, error) {
	list, err := s.processes(ctx)
	if err != nil {
		return hutch.Process{}, err
	}
	if len(list) == 0 {
		return hutch.Process{}, hutch.Errorf(hutch.NotFound, "the session %s has had no prompt since it was woken or copied: give it one with `hutch agent resume %[1]s --prompt TEXT`", s.ID)
	}
	return list[len(list)-1], nil
}

// Stop ends the agent.
func (s *Session) Stop(ctx context.Context) error {
	p, err := s.Last(ctx)
	if err != nil || !p.Status.Live() {
		return err
	}
	return s.svc.Signal(ctx, s.ID, p.ID, 15)
}

// Follow passes on what the agent does, from the beginning of a prompt, until it has ended. The agent works on if ctx ends
// or show fails.
func (s *Session) Follow(ctx context.Context, process string, show func(Event) error) (hutch.AgentResult, error) {
	d := decoder{read: formats[s.definition.format()], show: show}
	if show == nil {
		d.show = func(Event) error { return nil }
	}
	if _, err := s.svc.Logs(ctx, hutch.LogsRequest{SandboxID: s.ID, ProcessID: process, Follow: true}, d.add); err != nil {
		return hutch.AgentResult{}, err
	}
	if err := d.close(); err != nil {
		return hutch.AgentResult{}, err
	}
	p, err := s.svc.Process(ctx, s.ID, process)
	if err != nil {
		return hutch.AgentResult{}, err
	}
	res := hutch.AgentResult{SandboxID: s.ID, Agent: s.definition.Name, Answer: d.answer, Usage: d.usage}
	if p.ExitCode != nil {
		res.ExitCode = *p.ExitCode
	}
	if p.EndTime != nil {
		res.Duration = p.EndTime.Sub(p.StartTime).Milliseconds()
	}
	res.TimedOut = res.ExitCode == timedOut || res.ExitCode == killed && p.Signal == 0
	res.Success = res.ExitCode == 0 && !d.failed
	return res, s.addDiff(ctx, &res)
}

// addDiff adds what has changed.
func (s *Session) addDiff(ctx context.Context, res *hutch.AgentResult) error {
	diff, p, err := s.Diff(ctx)
	if err != nil {
		return err
	}
	res.Diff, res.Files = string(diff), len(p.Files)
	res.Added, res.Removed = p.Lines()
	return nil
}

// decoder makes events of output. A line can come in pieces.
type decoder struct {
	read    func(line []byte) []Event
	show    func(Event) error
	pending map[hutch.Stream][]byte
	answer  string
	usage   hutch.AgentUsage
	failed  bool
}

// maxLine bounds a line that an agent prints, in bytes. A longer one is cut.
const maxLine = 16 << 20

func (d *decoder) add(o hutch.Output) error {
	if d.pending == nil {
		d.pending = map[hutch.Stream][]byte{}
	}
	rest := o.Data
	for {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			if room := maxLine - len(d.pending[o.Stream]); len(rest) > room {
				rest = rest[:room]
			}
			d.pending[o.Stream] = append(d.pending[o.Stream], rest...)
			return nil
		}
		line := append(d.pending[o.Stream], rest[:i]...)
		d.pending[o.Stream], rest = nil, rest[i+1:]
		if err := d.line(o.Stream, line); err != nil {
			return err
		}
	}
}

func (d *decoder) close() error {
	for _, stream := range []hutch.Stream{hutch.Stdout, hutch.Stderr} {
		if err := d.line(stream, d.pending[stream]); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) line(stream hutch.Stream, line []byte) error {
	if line = bytes.TrimRight(line, "\r"); len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	events := []Event{{Type: Log, Text: string(line)}}
	if stream == hutch.Stdout {
		events = d.read(line)
	}
	for _, e := range events {
		switch e.Type {
		case Said:
			if !e.Continues {
				d.answer = ""
			}
			if len(d.answer) < maxText {
				d.answer += e.Text
			}
		case Ended:
			if e.Text != "" {
				d.answer = e.Text
			}
			d.failed = d.failed || e.Failed
			d.usage = plus(d.usage, e.Usage)
		}
		if err := d.show(e); err != nil {
			return err
		}
	}
	return nil
}

func plus(u hutch.AgentUsage, v *hutch.AgentUsage) hutch.AgentUsage {
	if v == nil {
		return u
	}
	return hutch.AgentUsage{Turns: u.Turns + v.Turns, InputTokens: u.InputTokens + v.InputTokens, OutputTokens: u.OutputTokens + v.OutputTokens, Cost: u.Cost + v.Cost}
}
