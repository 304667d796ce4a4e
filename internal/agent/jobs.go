package agent

import (
	"slices"
	"strings"
	"sync"
	"syscall"

	"hutch"
	"hutch/internal/wire"
)

// maxFinishedLogs bounds the logs of all ended processes together.
const maxFinishedLogs = 16 << 20

// jobs are the detached processes.
type jobs struct {
	agent *agent
	max   int // alive at once
	room  *spills

	mu     sync.Mutex
	closed bool
	all    []*job // oldest first
}

func newJobs(a *agent) *jobs {
	j := &jobs{agent: a, max: a.boot.MaxLive, room: newSpills(tempDir)}
	if j.max <= 0 {
		j.max = maxLive
	}
	return j
}

// start starts a detached process.
func (js *jobs) start(s wire.Start) (wire.Process, error) {
	if err := checkStart(s); err != nil {
		return wire.Process{}, err
	}
	switch s.Restart {
	case "":
		s.Restart = hutch.RestartNever
	case hutch.RestartNever, hutch.RestartOnFailure, hutch.RestartAlways:
	default:
		return wire.Process{}, hutch.Errorf(hutch.Invalid, "the restart policy %s is not known: use never, on-failure or always", quote(string(s.Restart)))
	}
	if s.StopSignal < 0 || s.StopSignal > 64 {
		return wire.Process{}, hutch.Errorf(hutch.Invalid, "there is no signal %d: use 1 to 64", s.StopSignal)
	}
	if s.Health != nil {
		if err := s.Health.Check(); err != nil {
			return wire.Process{}, err
		}
	}
	j := newJob(js.agent, s)
	if err := js.addJob(j); err != nil {
		return wire.Process{}, err
	}
	if err := j.startFirst(); err != nil {
		js.remove(j)
		return wire.Process{}, err
	}
	return j.record(), nil
}

// addJob registers a job among the live ones, if there is room.
func (js *jobs) addJob(j *job) error {
	js.mu.Lock()
	defer js.mu.Unlock()
	switch {
	case js.closed:
		return hutch.Errorf(hutch.Unavailable, "the agent ends")
	case js.findLocked(j.start.ID) != nil:
		return hutch.Errorf(hutch.Conflict, "there is a process %s already: choose another id", j.start.ID)
	case js.liveLocked() >= js.max:
		return hutch.Errorf(hutch.Exhausted, "the limit of %d concurrent background processes is reached: end one of them first, or make a sandbox with a higher limit (processes)", js.max).With("limit", "processes")
	}
	js.all = append(js.all, j)
	return nil
}

func (js *jobs) remove(j *job) {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.all = slices.DeleteFunc(js.all, func(o *job) bool { return o == j })
}

// tidy drops the oldest ended processes. Their logs are dropped first, because all logs together can take half of the
// disk space.
func (js *jobs) tidy() {
	js.mu.Lock()
	defer js.mu.Unlock()
	ended, size, cold := 0, 0, int64(0)
	for i := len(js.all) - 1; i >= 0; i-- {
		j := js.all[i]
		if j.record().Status.Live() {
			continue
		}
		memory, disk := j.log.size()
		if cold += disk; cold > js.room.all/2 {
			j.log.dropSpilled()
		}
		if size += memory; size > maxFinishedLogs {
			j.log.forget()
		}
		if ended++; ended > wire.MaxFinished {
			j.log.forget()
			js.all = slices.Delete(js.all, i, i+1)
		}
	}
}

// clean drops all ended processes, and returns their number.
func (js *jobs) clean() int {
	js.mu.Lock()
	defer js.mu.Unlock()
	before := len(js.all)
	js.all = slices.DeleteFunc(js.all, func(j *job) bool {
		if j.record().Status.Live() {
			return false
		}
		j.log.forget()
		return true
	})
	return before - len(js.all)
}

func (js *jobs) resize(r wire.Resize) error {
	j, err := js.find(r.Process)
	if err != nil {
		return err
	}
	return j.resize(r.Size)
}

func (js *jobs) findLocked(id string) *job {
	i := slices.IndexFunc(js.all, func(j *job) bool { return j.start.ID == id })
	if i < 0 {
		return nil
	}
	return js.all[i]
}

func (js *jobs) find(id string) (*job, error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if j := js.findLocked(id); j != nil {
		return j, nil
	}
	return nil, hutch.Errorf(hutch.NotFound, "there is no background process %s: those that ended long ago are forgotten", quote(id))
}

func (js *jobs) liveLocked() int {
	n := 0
	for _, j := range js.all {
		if j.record().Status.Live() {
			n++
		}
	}
	return n
}

func (js *jobs) live() int {
	js.mu.Lock()
	defer js.mu.Unlock()
	return js.liveLocked()
}

func (js *jobs) list() []wire.Process {
	js.mu.Lock()
	defer js.mu.Unlock()
	records := make([]wire.Process, 0, len(js.all))
	for _, j := range js.all {
		records = append(records, j.record())
	}
	fit(records)
	return records
}

// fit shortens commands if the list could be longer than a reply: one byte of a command can take six in JSON.
func fit(list []wire.Process) {
	const other = 768 // bytes of a record without its command, at most
	size := 0
	for _, p := range list {
		size += other + 6*len(p.Command)
		if p.Health != nil {
			size += 6 * len(p.Health.Output)
		}
	}
	if size <= wire.MaxReply {
		return
	}
	for i := range list {
		if h := list[i].Health; h != nil {
			short := *h
			short.Output = ""
			list[i].Health = &short
		}
	}
	most := max(wire.MaxReply/len(list)-other, 0) / 6
	for i := range list {
		list[i].Command = clip(list[i].Command, most)
	}
}

// clip returns the beginning of a text, in whole characters.
func clip(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

func (js *jobs) signalProcess(s wire.Signal) error {
	if s.Signal < 1 || s.Signal > 64 {
		return hutch.Errorf(hutch.Invalid, "there is no signal %d: use 1 to 64", s.Signal)
	}
	j, err := js.find(s.Process)
	if err != nil {
		return err
	}
	j.signal(syscall.Signal(s.Signal))
	return nil
}

// close ends all jobs.
func (js *jobs) close() {
	js.mu.Lock()
	js.closed = true
	list := slices.Clone(js.all)
	js.mu.Unlock()
	for _, j := range list {
		j.signal(syscall.SIGKILL)
	}
}
