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
	"hutch/internal/caller"
	"hutch/internal/text"
)

// commandOf is the format of a prompt's command. Its values are the earlier SleepAfter of the sandbox (see stayAwake),
// the agent's time limit in seconds, and a script that starts the agent when its prompt has arrived: see
// [Session.Start].
const commandOf = ": %v; exec timeout -k 5 %v bash -c %s"

// takePrompt writes the prompt's file once the whole prompt has arrived. Until then the file belongs to an earlier
// prompt, or to a prompt of another caller.
const takePrompt = `umask 077 && text=$(cat; echo .) && [ "$text" != . ] && printf %s "${text%.}" >` + prompt

// notGiven is the signal that ends a process which gets no prompt, because an earlier prompt is still at work.
const notGiven = 12

// timedOut is the exit code of timeout(1) when the time is over; killed is the exit code of a program that had to be
// killed.
const (
	timedOut = 124
	killed   = 128 + 9
)

// Prompt gives the agent a prompt, and returns when the agent has finished it. If ctx ends, the agent is ended, too.
// For an agent that continues without its caller, use [Session.Start] and [Session.Follow].
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

// Start gives the agent a prompt, and returns the id of the prompt's process. Only one prompt runs at a time.
func (s *Session) Start(ctx context.Context, text string, timeout time.Duration) (string, error) {
	if err := (hutch.AgentPrompt{Prompt: text, Timeout: hutch.InSeconds(timeout)}).Check(); err != nil {
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
			return "", s.atWork()
		}
	}
	if timeout == 0 {
		timeout = defaultTimeout
	}
	seconds := math.Ceil(timeout.Seconds())
	before, err := s.stayAwake(ctx, seconds, earlier)
	if err != nil {
		return "", err
	}
	work := takePrompt + " && exec bash -c " + hutch.CommandLine(command) + " <" + prompt
	p, err := s.svc.StartProcess(ctx, s.ID, hutch.ProcessRequest{
		Name: processName, Dir: Folder, Stdin: true, Command: fmt.Sprintf(commandOf, float64(before), seconds, hutch.CommandLine(work)),
	})
	if err != nil {
		return "", err
	}
	if err := s.sendPrompt(ctx, p.ID, text); err != nil {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if s.svc.Signal(last, s.ID, p.ID, notGiven) == nil {
			s.svc.Wait(last, s.ID, p.ID, hutch.WaitRequest{})
		}
		return "", err
	}
	return p.ID, nil
}

// sendPrompt gives a process its prompt, if no earlier prompt is at work. Two callers can both have found the agent
// idle. The processes that they started are in the sandbox's list in one order, and only the first of them gets a
// prompt.
func (s *Session) sendPrompt(ctx context.Context, process, text string) error {
	list, err := s.processes(ctx)
	if err != nil {
		return err
	}
	for _, p := range list {
		if p.ID == process {
			break
		}
		if p.Status.Live() {
			return s.atWork()
		}
	}
	return s.svc.Input(ctx, s.ID, process, strings.NewReader(text), true)
}

func (s *Session) atWork() error {
	return hutch.Errorf(hutch.Conflict, "the agent of %s is at work: wait for it with `hutch agent attach %[1]s`, or end it with `hutch agent stop %[1]s`", s.ID).Naming(hutch.AboutSandbox, s.ID)
}

// awake returns the SleepAfter of a sandbox in which an agent can work for a number of seconds.
func awake(seconds float64) hutch.Seconds {
	return hutch.Seconds(min(seconds+60, defaultKeep.Seconds()))
}

// stayAwake keeps the sandbox awake until the agent's time is over, even if no caller follows the agent: a running
// process does not count as use. It returns the setting to restore afterwards, which is never a setting that an earlier
// prompt made; 0 is the server's default.
func (s *Session) stayAwake(ctx context.Context, seconds float64, earlier []hutch.Process) (hutch.Seconds, error) {
	sb, err := s.svc.Sandbox(ctx, s.ID)
	if err != nil {
		return 0, err
	}
	before := sb.SleepAfter
	for _, p := range slices.Backward(earlier) { // an earlier prompt that no caller followed has not restored the setting
		if was, limit := timesOf(p); before == awake(limit) {
			before = was
		}
	}
	if sb.KeepAlive || sb.SleepAfter >= awake(seconds) {
		return before, nil
	}
	_, err = s.svc.Update(ctx, s.ID, hutch.UpdateRequest{SleepAfter: new(awake(seconds))})
	if errors.Is(err, hutch.Denied) {
		return before, nil // the sandbox is shared, and only its owner can change it
	}
	return before, err
}

// restoreSleep restores the time after which the sandbox sleeps, when the agent has ended. If that fails, it only costs memory for a while.
func (s *Session) restoreSleep(ctx context.Context, p hutch.Process) {
	before, limit := timesOf(p)
	if sb, err := s.svc.Sandbox(ctx, s.ID); err == nil && sb.SleepAfter == awake(limit) {
		s.svc.Update(ctx, s.ID, hutch.UpdateRequest{SleepAfter: &before})
	}
}

// timesOf reads the two numbers in the command of a prompt: the earlier setting of stayAwake, and the agent's time limit in seconds.
func timesOf(p hutch.Process) (before hutch.Seconds, limit float64) {
	fmt.Sscanf(p.Command, commandOf, &before, &limit, new(string))
	return before, limit
}

// processes returns the processes that were started for prompts, oldest first.
func (s *Session) processes(ctx context.Context) ([]hutch.Process, error) {
	list, err := s.svc.Processes(ctx, s.ID)
	return slices.DeleteFunc(list, func(p hutch.Process) bool { return p.Name != processName || p.Signal == notGiven }), err
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
	if i := slices.IndexFunc(list, func(p hutch.Process) bool { return p.Status.Live() }); i >= 0 {
		return list[i], nil // while it is alive, no later process gets a prompt
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

// Follow passes on what the agent does, from the beginning of a prompt, until it has ended. The agent continues if ctx
// ends or show fails.
func (s *Session) Follow(ctx context.Context, process string, show func(Event) error) (hutch.AgentResult, error) {
	d := decoder{read: formats[s.definition.format()], show: show, take: caller.From(ctx).Budget.Take}
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
	s.restoreSleep(ctx, p)
	res := hutch.AgentResult{SandboxID: s.ID, Agent: s.definition.Name, Answer: d.answer, Usage: d.usage}
	if p.ExitCode != nil {
		res.ExitCode = *p.ExitCode
	}
	if p.EndTime != nil {
		res.Duration = p.EndTime.Sub(p.StartTime).Milliseconds()
	}
	res.TimedOut = (res.ExitCode == timedOut || res.ExitCode == killed && p.Signal == 0) && atItsLimit(p)
	res.Success = res.ExitCode == 0 && !d.failed
	return res, s.addDiff(ctx, &res)
}

// atItsLimit reports whether a process ran as long as its time limit allows. A process that was killed for its memory,
// or that chose its exit code, ended earlier.
func atItsLimit(p hutch.Process) bool {
	_, limit := timesOf(p)
	return p.EndTime != nil && p.EndTime.Sub(p.StartTime).Seconds() > limit-1 // the clock can have been adjusted
}

// addDiff adds the session's diff to a result.
func (s *Session) addDiff(ctx context.Context, res *hutch.AgentResult) error {
	diff, sum, err := s.Diff(ctx)
	if err != nil {
		return err
	}
	res.Diff, res.Files, res.Added, res.Removed = string(diff), sum.Files, sum.Added, sum.Removed
	return nil
}

// decoder makes events of output. A line can come in pieces.
type decoder struct {
	read    func(line []byte) []Event
	show    func(Event) error
	take    func(bytes int) bool // charges memory to the caller; false if the budget has no room
	pending map[hutch.Stream]*begun
	answer  string
	usage   hutch.AgentUsage
	failed  bool
}

// begun is a line without its end.
type begun struct {
	text []byte
	room int // length for which memory was charged, in bytes
}

const (
	// maxLine bounds a line that an agent prints, in bytes. A longer one is cut.
	maxLine = 4 << 20
	// freeLine is how many bytes of a line are kept without being charged.
	freeLine = 64 << 10
)

func (d *decoder) add(o hutch.Output) error {
	if d.pending == nil {
		d.pending = map[hutch.Stream]*begun{hutch.Stdout: {room: freeLine}, hutch.Stderr: {room: freeLine}}
	}
	line := d.pending[o.Stream]
	if line == nil {
		return nil
	}
	if o.Lost > 0 {
		line.text = line.text[:0] // the end of the line is missing
	}
	for rest, ends := o.Data, true; len(rest) > 0; {
		var piece []byte
		piece, rest, ends = bytes.Cut(rest, []byte{'\n'})
		d.extend(line, piece)
		if !ends {
			break
		}
		if err := d.line(o.Stream, line.text); err != nil {
			return err
		}
		line.text = line.text[:0]
	}
	return nil
}

// extend adds a piece to a line, up to maxLine. It drops the piece if the memory budget has no room for it.
func (d *decoder) extend(line *begun, piece []byte) {
	piece = piece[:min(len(piece), maxLine-len(line.text))]
	if more := len(line.text) + len(piece) - line.room; more > 0 {
		more = max(more, freeLine)
		if d.take != nil && !d.take(held*more) {
			return
		}
		line.room += more
	}
	line.text = append(line.text, piece...)
}

func (d *decoder) close() error {
	for _, stream := range []hutch.Stream{hutch.Stdout, hutch.Stderr} {
		if line := d.pending[stream]; line != nil {
			if err := d.line(stream, line.text); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *decoder) line(stream hutch.Stream, line []byte) error {
	if line = bytes.TrimRight(line, "\r"); len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	events := []Event{{Type: Log, Text: text.Head(string(line), maxText, " …")}}
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
			d.usage = addUsage(d.usage, e.Usage)
		}
		if err := d.show(e); err != nil {
			return err
		}
	}
	return nil
}

func addUsage(u hutch.AgentUsage, v *hutch.AgentUsage) hutch.AgentUsage {
	if v == nil {
		return u
	}
	sum := hutch.AgentUsage{Turns: u.Turns + v.Turns, InputTokens: u.InputTokens + v.InputTokens, OutputTokens: u.OutputTokens + v.OutputTokens, Cost: u.Cost + v.Cost}
	if math.IsInf(sum.Cost, 0) {
		sum.Cost = 0 // JSON has no such number
	}
	return sum
}
