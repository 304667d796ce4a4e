package envd

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"hutch"
)

// command is a process that clients know by its process id. Ended processes report no id, so their ids are remembered
// for a while.
type command struct {
	place    string // sandbox
	pid      int
	id       string        // id of the process in package hutch
	config   processConfig // zero if it is too long to remember
	terminal bool

	mu      sync.Mutex
	endedAt time.Time
	limit   *time.Timer // nil for none
}

// after calls f after a delay, unless the command is known to have ended before the delay is over.
func (c *command) after(d time.Duration, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endedAt.IsZero() {
		c.limit = time.AfterFunc(d, f)
	}
}

func (c *command) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endedAt = time.Now()
	if c.limit != nil {
		c.limit.Stop()
	}
}

// expired reports whether a command ended so long ago that clients no longer find it.
func (c *command) expired(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.endedAt.IsZero() && now.Sub(c.endedAt) > lateConnect
}

// lateConnect is how long after its end a command can be connected to.
const lateConnect = 30 * time.Second

// maxCommands is how many commands of all sandboxes are remembered. A running command that was forgotten is found again
// among the processes of its sandbox.
const maxCommands = 16 << 10

// beyondPIDs is more than any process id of Linux.
const beyondPIDs = 1 << 22

// commands remembers commands. The zero value is empty.
type commands struct {
	mu   sync.Mutex
	all  map[commandKey]*command
	past int // commands without a process id of their own
}

type commandKey struct {
	place string
	pid   int
}

// add remembers a command. If it ended before its process id was known, it gets a number that no process has.
func (cs *commands) add(c *command) *command {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.pid == 0 {
		cs.past++
		c.pid = beyondPIDs + cs.past%beyondPIDs
	}
	if cs.all == nil {
		cs.all = map[commandKey]*command{}
	}
	if len(cs.all) >= maxCommands {
		cs.tidyLocked()
	}
	cs.all[commandKey{c.place, c.pid}] = c
	return c
}

// tidyLocked makes space: it drops expired commands or, if there are none, any command.
func (cs *commands) tidyLocked() {
	now := time.Now()
	for key, c := range cs.all {
		if c.expired(now) {
			delete(cs.all, key)
		}
	}
	for key := range cs.all {
		if len(cs.all) < maxCommands {
			return
		}
		delete(cs.all, key)
	}
}

// get returns a remembered command, or nil.
func (cs *commands) get(place string, pid int) *command {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.all[commandKey{place, pid}]
	if c != nil && c.expired(time.Now()) {
		delete(cs.all, commandKey{place, pid})
		return nil
	}
	return c
}

// selector chooses a process.
type selector struct {
	PID *int    `json:"pid"`
	Tag *string `json:"tag"`
}

// selection is a request that only chooses a process.
type selection struct {
	Process selector `json:"process"`
}

func errNoProcess(s selector) error {
	if s.PID != nil {
		return rpcErrorf(notFound, "process with pid %d not found", *s.PID)
	}
	return rpcErrorf(notFound, "process with tag %s not found", *s.Tag)
}

// find returns the command that a selector chooses.
func (h *Handler) find(q request, s selector) (*command, error) {
	if s.PID == nil == (s.Tag == nil) {
		return nil, rpcErrorf(invalidArgument, "choose a process by its pid or by its tag")
	}
	here := place(q.ctx, q.target)
	if s.PID != nil {
		if c := h.commands.get(here, *s.PID); c != nil {
			return c, nil
		}
	}
	all, err := q.target.Service.Processes(unmetered(q.ctx), q.target.Sandbox)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if p.Status.Live() && p.PID != 0 && (s.PID != nil && p.PID == *s.PID || s.Tag != nil && *s.Tag != "" && p.Name == *s.Tag) {
			return h.remember(here, p), nil
		}
	}
	return nil, errNoProcess(s)
}

// remember returns the command of a process that runs.
func (h *Handler) remember(here string, p hutch.Process) *command {
	if c := h.commands.get(here, p.PID); c != nil && c.id == p.ID {
		return c
	}
	return h.commands.add(&command{place: here, pid: p.PID, id: p.ID, config: configOf(p.Command).short(), terminal: p.Terminal != nil})
}

// maxConfig is the longest configuration that is remembered, in bytes. In place of a longer configuration, lists show
// the command line in the process's record.
const maxConfig = 4 << 10

// short returns a configuration that is short enough to be remembered, or an empty one.
func (p processConfig) short() processConfig {
	const each = 64 // for a string and its place
	n := len(p.Cmd) + len(p.Cwd)
	for _, arg := range p.Args {
		n += len(arg) + each
	}
	for name, value := range p.Envs {
		n += len(name) + len(value) + each
	}
	if n > maxConfig {
		return processConfig{}
	}
	return p
}

// configOf parses a command line that hutch.CommandLine wrote. Any other command line is shown as the program.
func configOf(line string) processConfig {
	words, ok := splitWords(line)
	if !ok {
		return processConfig{Cmd: line}
	}
	return processConfig{Cmd: words[0], Args: words[1:]}
}

// splitWords undoes hutch.CommandLine.
func splitWords(line string) (words []string, ok bool) {
	for rest := line; ; {
		var word strings.Builder
		for {
			quoted, after, closed := strings.Cut(strings.TrimPrefix(rest, "'"), "'")
			if !strings.HasPrefix(rest, "'") || !closed {
				return nil, false
			}
			word.WriteString(quoted)
			rest = after
			if !strings.HasPrefix(rest, `\''`) {
				break
			}
			word.WriteByte('\'')
			rest = rest[2:]
		}
		words = append(words, word.String())
		if rest == "" {
			return words, true
		}
		if rest, ok = strings.CutPrefix(rest, " "); !ok {
			return nil, false
		}
	}
}

type processInfo struct {
	Config processConfig `json:"config"`
	PID    int           `json:"pid"`
	Tag    string        `json:"tag,omitempty"`
}

type listResponse struct {
	Processes []processInfo `json:"processes"`
}

// list lists the processes that run.
func (h *Handler) list(q request, _ struct{}) (listResponse, error) {
	all, err := q.target.Service.Processes(q.ctx, q.target.Sandbox)
	if err != nil {
		return listResponse{}, err
	}
	answer := listResponse{[]processInfo{}}
	here := place(q.ctx, q.target)
	for _, p := range all {
		if p.Status.Live() && p.PID != 0 {
			config := h.remember(here, p).config
			if config.Cmd == "" {
				config = configOf(p.Command)
			}
			answer.Processes = append(answer.Processes, processInfo{config, p.PID, p.Name})
		}
	}
	return answer, nil
}

// signalNumber is a signal. In JSON it is a name or a number.
type signalNumber int

func (n *signalNumber) UnmarshalJSON(b []byte) error {
	switch text := strings.Trim(string(b), `"`); text {
	case "SIGNAL_SIGTERM", "15":
		*n = signalNumber(syscall.SIGTERM)
	case "SIGNAL_SIGKILL", "9":
		*n = signalNumber(syscall.SIGKILL)
	default:
		return rpcErrorf(unimplemented, "invalid signal: %.40s", text)
	}
	return nil
}

var _ json.Unmarshaler = (*signalNumber)(nil)

func itoa(n int) string { return strconv.Itoa(n) }
