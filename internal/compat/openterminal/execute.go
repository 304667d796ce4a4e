package openterminal

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/compat"
)

// command is the body of execute.
type command struct {
	Command string            `json:"command"`
	Dir     string            `json:"cwd"`
	Env     map[string]string `json:"env"`
}

// entry is a piece of output of one stream, usually one line.
type entry struct {
	Type string `json:"type"` // "stdout" or "stderr"
	Data string `json:"data"`
}

// process is a command as the API describes it. Offsets count bytes of the output.
type process struct {
	ID      string  `json:"id"`
	Command string  `json:"command"`
	Status  string  `json:"status"` // "running", "done" or "killed"
	Code    *int    `json:"exit_code"`
	Output  []entry `json:"output"`
	Cut     bool    `json:"truncated"`
	Next    int64   `json:"next_offset"`
	Log     *string `json:"log_path"` // always null
}

// listed is a command in a list.
type listed struct {
	ID      string  `json:"id"`
	Command string  `json:"command"`
	Status  string  `json:"status"`
	Code    *int    `json:"exit_code"`
	Log     *string `json:"log_path"`
}

const (
	maxWait    = 300       // s
	maxOutput  = 256 << 10 // bytes of an answer; the rest is asked for by its offset
	maxEntries = 5000      // most entries of an answer
)

func statusOf(p hutch.Process) (string, *int) {
	switch {
	case p.Status.Live():
		return "running", nil
	case p.Signal != 0:
		code := -p.Signal
		return "killed", &code
	case p.ExitCode == nil:
		code := -1
		return "done", &code
	}
	return "done", p.ExitCode
}

func (c *call) processes() (any, error) {
	list, err := c.svc.Processes(c.ctx, c.sandbox)
	if err != nil {
		return nil, err
	}
	all := []listed{}
	for _, p := range list {
		if isTerminal(p) {
			continue
		}
		status, code := statusOf(p)
		all = append(all, listed{p.ID, p.Command, status, code, nil})
	}
	return all, nil
}

func (c *call) execute() (any, error) {
	var req command
	if err := compat.ReadJSON(c.w, c.r, &req); err != nil {
		return nil, err
	}
	dir := c.dir()
	if req.Dir != "" {
		var err error
		if dir, err = c.resolve(req.Dir); err != nil {
			return nil, err
		}
	}
	start := hutch.ProcessRequest{Command: req.Command, Dir: dir, Env: req.Env, Stdin: true}
	if err := start.Check(); err != nil {
		return nil, err
	}
	p, err := c.svc.StartProcess(c.ctx, c.sandbox, start)
	if about, _ := hutch.AsError(err).About(); err != nil && hutch.KindOf(err) == hutch.Exhausted && about == hutch.AboutSandbox {
		c.svc.CleanProcesses(c.ctx, c.sandbox) // processes that have ended can count towards the limit
		p, err = c.svc.StartProcess(c.ctx, c.sandbox, start)
	}
	if err != nil {
		return nil, err
	}
	return c.show(p.ID, 0)
}

func (c *call) status() (any, error) {
	offset, err := c.number("offset", 0, 0, 1<<52)
	if err != nil {
		return nil, err
	}
	return c.show(c.r.PathValue("process"), int64(offset))
}

// show waits for a process as long as the client asks, and describes it.
func (c *call) show(id string, offset int64) (any, error) {
	wait, err := c.number("wait", 0, 0, maxWait)
	if err != nil {
		return nil, err
	}
	tail, err := c.number("tail", 0, 1, 1<<30)
	if err != nil {
		return nil, err
	}
	if wait > 0 {
		if _, err := c.svc.Wait(c.ctx, c.sandbox, id, hutch.WaitRequest{Timeout: hutch.Seconds(wait)}); err != nil {
			return nil, err
		}
	}
	p, err := c.svc.Process(c.ctx, c.sandbox, id)
	if err != nil {
		return nil, err
	}
	status, code := statusOf(p)
	answer := process{ID: p.ID, Command: p.Command, Status: status, Code: code, Next: offset}
	if err := c.output(&answer, offset); err != nil {
		return nil, err
	}
	if n := int(tail); n > 0 && n < len(answer.Output) {
		answer.Output, answer.Cut = answer.Output[len(answer.Output)-n:], true
	}
	return answer, nil
}

// output reads what the process has printed from an offset on.
func (c *call) output(p *process, offset int64) error {
	size := 0
	p.Output = []entry{}
	if !compat.Take(c.ctx, 2*maxOutput) {
		return compat.ErrNoRoom
	}
	_, err := c.svc.Logs(c.ctx, hutch.LogsRequest{SandboxID: c.sandbox, ProcessID: p.ID, Cursor: offset}, func(o hutch.Output) error {
		if size += len(o.Data); len(p.Output) > 0 && (size > maxOutput || len(p.Output) >= maxEntries) {
			p.Cut = true
			return compat.ErrTooLong
		}
		p.Cut = p.Cut || o.Lost > 0
		p.Next = o.Cursor
		for rest := o.Data; len(rest) > 0; {
			line := rest
			if i := bytes.IndexByte(rest, '\n'); i >= 0 && len(p.Output) < maxEntries { // else the last entry has many lines
				line = rest[:i+1]
			}
			p.Output = append(p.Output, entry{string(o.Stream), valid(string(line))})
			rest = rest[len(line):]
		}
		return nil
	})
	if err != nil && !p.Cut {
		return err
	}
	return nil
}

// escapes matches what models write for characters that they cannot write, such as \n and \x03.
var escapes = regexp.MustCompile(`\\(?:x[0-9a-fA-F]{2}|[nrt0abfve\\])`)

var controls = map[byte]string{'n': "\n", 'r': "\r", 't': "\t", '0': "\x00", 'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v", 'e': "\x1b", '\\': "\\"}

func unescape(text string) string {
	return escapes.ReplaceAllStringFunc(text, func(s string) string {
		if s[1] != 'x' {
			return controls[s[1]]
		}
		n, _ := strconv.ParseUint(s[2:], 16, 8) // two digits
		return string(rune(n))
	})
}

func (c *call) input() (any, error) {
	var req struct {
		Input string `json:"input"`
	}
	if err := compat.ReadJSON(c.w, c.r, &req); err != nil {
		return nil, err
	}
	err := c.svc.Input(c.ctx, c.sandbox, c.r.PathValue("process"), strings.NewReader(unescape(req.Input)), false)
	if err != nil && hutch.KindOf(err) == hutch.Conflict {
		return nil, hutch.Errorf(hutch.Invalid, "Process has already exited, or its input is closed")
	}
	return map[string]string{"status": "ok"}, err
}

func (c *call) kill() (any, error) {
	signal := unix.SIGTERM
	force, err := c.flag("force", false)
	if err != nil {
		return nil, err
	}
	if force {
		signal = unix.SIGKILL
	}
	list, err := c.svc.Processes(c.ctx, c.sandbox)
	if err != nil {
		return nil, err
	}
	id := c.r.PathValue("process")
	i := slices.IndexFunc(list, func(p hutch.Process) bool { return p.ID == id })
	switch {
	case i < 0:
		return nil, hutch.Errorf(hutch.NotFound, "Process not found")
	case list[i].Status.Live():
		if err := c.svc.Signal(c.ctx, c.sandbox, id, int(signal)); err != nil {
			return nil, err
		}
		_, err = c.svc.Wait(c.ctx, c.sandbox, id, hutch.WaitRequest{Timeout: 10})
	}
	return map[string]string{"status": "killed"}, err
}
