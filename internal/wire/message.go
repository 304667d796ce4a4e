package wire

import (
	"bytes"
	"encoding/json"
	"fmt"

	"hutch"
)

// Version is the protocol's version. Daemon and agent must have the same.
const Version = 2

const (
	MaxRequest = 8 << 20 // bytes of a frame from the daemon
	MaxReply   = 1 << 20 // bytes of a frame from the agent
	MaxChunk   = 64 << 10
	// StdinWindow is how many unconfirmed bytes of stdin can be on their way.
	StdinWindow = 256 << 10
	// LogSize is how many bytes of a process's output the agent keeps in memory; MaxLog is the most in total, the
	// rest on disk.
	LogSize = 1 << 20
	MaxLog  = 17 << 20
	// MaxFinished is how many ended detached processes the agent remembers.
	MaxFinished = 64
)

// ProcessEnv is the environment variable that holds the process's id.
const ProcessEnv = "HUTCH_PROCESS"

// Boot is the first message to an agent, from the driver that starts it.
type Boot struct {
	Version int    `json:"version"`
	Token   string `json:"token"` // both sides prove that they know it
	// Listen is where the agent listens: "fd:3", or "unix:path" if the instance cannot get an open descriptor.
	Listen string `json:"listen"`
	// Saved is the path of a file that becomes readable when the instance has been saved; empty if the instance cannot
	// be saved.
	Saved string `json:"saved,omitempty"`
	// UID and GID are the ids of commands, if the agent can change ids.
	UID      int      `json:"uid"`
	GID      int      `json:"gid"`
	Groups   []int    `json:"groups,omitempty"` // supplementary groups of commands; requests about files do not have them
	Home     string   `json:"home"`
	Dir      string   `json:"dir"`     // default working directory
	Env      []string `json:"env"`     // KEY=VALUE, the base of every command's environment
	MaxLive  int      `json:"maxLive"` // most live detached processes
	Hostname string   `json:"hostname"`
	// Filter is the seccomp filter for all processes that the agent starts, as an array of the kernel's struct
	// sock_filter; empty if the agent is already under a filter. With Pass the agent can call clone3, which no other
	// process can.
	Filter []byte    `json:"filter,omitempty"`
	Pass   [2]uint64 `json:"pass"`
	// Apart is true if commands are in a separate user namespace, in which they can be root, and the agent has the id
	// AgentID.
	Apart bool `json:"apart,omitempty"`
	// Namespace is a descriptor of that user namespace, which the agent's program makes at its start.
	Namespace int `json:"-"`
	// Offer is set by the agent's program if the kernel chooses which process of the instance to kill at the memory
	// limit. The kernel should then kill programs before the agent, because without the agent the instance ends.
	Offer bool `json:"-"`
	// Alone is set by the agent's program if the agent is not the first process of its pid namespace, but inherits all orphans
	// there and is allowed to stop all other processes.
	Alone bool `json:"-"`
}

// AgentID is the user and group of an agent where commands can be root. No command can have this id, and no file or
// process of it belongs to a command.
const AgentID = 1<<32 - 2

// PrivateDir is a folder that only the agent can enter. It exists in sandboxes where commands can be root.
const PrivateDir = "/.hutch/own"

// Hello opens a connection.
type Hello struct {
	Version int    `json:"version"`
	Nonce   []byte `json:"nonce"`
}

// Welcome answers a hello. The daemon then sends its own proof first.
type Welcome struct {
	Version int    `json:"version"`
	Build   string `json:"build"` // the agent's commit, for people
	Nonce   []byte `json:"nonce"`
	Proof   []byte `json:"proof"` // proof of the agent's side
}

// Request is the form of all requests; Op says which field is set.
type Request struct {
	Op     string  `json:"op"` // start, attach, list, signal, ping, input, resize, wait, clean, park, adopt, port, listening, relieve
	Start  *Start  `json:"start,omitempty"`
	Attach *Attach `json:"attach,omitempty"`
	Signal *Signal `json:"signal,omitempty"`
	Input  *Input  `json:"input,omitempty"`
	Resize *Resize `json:"resize,omitempty"`
	Wait   *Wait   `json:"wait,omitempty"`
	Port   int     `json:"port,omitempty"`

	Context *Context `json:"context,omitempty"` // for context, spare, uncontext and interrupt
	Run     *Run     `json:"run,omitempty"`

	Relieve *Relieve `json:"relieve,omitempty"`

	File  *File     `json:"file,omitempty"` // for the requests about files
	Adopt *Identity `json:"adopt,omitempty"`
}

// Start runs a process.
type Start struct {
	ID   string `json:"id"` // chosen by the daemon, unique for the sandbox's life
	Name string `json:"name,omitempty"`
	// Command is a bash command line. Argv, when set, is run without a shell. If both are set, Argv holds $1 and
	// further arguments of the command line.
	Command string   `json:"command,omitempty"`
	Argv    []string `json:"argv,omitempty"`
	// Compile, when set, runs first, with an empty stdin and all output on stderr. If it does not exit with 0, the
	// program does not run: see Exit.Compile. Attached processes only.
	Compile []string `json:"compile,omitempty"`
	// Source, when set, is written to a file named SourceName in a new folder, which is removed with the process. In
	// Argv and Compile, [SourceArg] is replaced by the file's path, and [ProgramArg] by the path of another file in
	// that folder.
	Source     string   `json:"source,omitempty"`
	SourceName string   `json:"sourceName,omitempty"`
	Dir        string   `json:"dir,omitempty"`
	User       string   `json:"user,omitempty"` // a name or UID, or one of them with :GROUP; default: Boot.UID
	Env        []string `json:"env,omitempty"`  // KEY=VALUE; these replace variables of Boot.Env
	TimeoutMS  int64    `json:"timeoutMs,omitempty"`
	// Whole runs the process as root instead of as User, in a sandbox where commands can be root: for the programs
	// that save and restore the files of all users.
	Whole bool `json:"whole,omitempty"`
	// ReadAll lets the process read files that its user cannot read, if the agent can read them. It is for the program
	// that saves files. No other process has a privilege, and this process has no variables of the sandbox or of Env.
	ReadAll bool                `json:"readAll,omitempty"`
	Stdin   bool                `json:"stdin,omitempty"` // a pipe with the data of I frames; otherwise empty
	Detach  bool                `json:"detach,omitempty"`
	Restart hutch.RestartPolicy `json:"restart,omitempty"`
	// Terminal gives a detached process a controlling terminal of that size for all three descriptors. Its output is
	// stdout.
	Terminal *hutch.Size `json:"terminal,omitempty"`
	// StopSignal is a signal that asks a detached process to end, like 15: the process is not restarted after it.
	StopSignal int `json:"stopSignal,omitempty"`
	// Health is checked while a detached process runs. An agent that does not know it ignores it.
	Health *hutch.HealthCheck `json:"health,omitempty"`
}

// SourceArg is replaced by the path of the source file in Start.Argv.
const SourceArg = "\x00source"

// ProgramArg is replaced by the path of the compiled program.
const ProgramArg = "\x00program"

// Attach reads a process's output.
type Attach struct {
	Process string `json:"process"`
	Cursor  int64  `json:"cursor"`
	Follow  bool   `json:"follow,omitempty"`
	// SinceMS skips output from before that Unix time, and Times requests time frames. An agent that does not know
	// these fields ignores them.
	SinceMS int64 `json:"sinceMs,omitempty"`
	Times   bool  `json:"times,omitempty"`
}

// Signal signals a process's tree. Process is empty in an S frame.
type Signal struct {
	Process string `json:"process,omitempty"`
	Signal  int    `json:"signal"`
}

// Process is the agent's record of a process.
type Process struct {
	ID         string              `json:"id"`
	Name       string              `json:"name,omitempty"`
	Command    string              `json:"command,omitempty"` // at most its first 4 KiB
	Status     hutch.ProcessStatus `json:"status"`
	PID        int                 `json:"pid,omitempty"`
	ExitCode   *int                `json:"exitCode,omitempty"`
	Signal     int                 `json:"signal,omitempty"` // signal that ended it
	StartMS    int64               `json:"startMs"`          // Unix time
	EndMS      int64               `json:"endMs,omitempty"`
	Restart    hutch.RestartPolicy `json:"restart,omitempty"`
	Restarts   int                 `json:"restarts,omitempty"`
	Terminal   *hutch.Size         `json:"terminal,omitempty"`
	StopSignal int                 `json:"stopSignal,omitempty"`
	Health     *Health             `json:"health,omitempty"`
}

// Health is the agent's record of a process's health.
type Health struct {
	Status    hutch.HealthStatus `json:"status"`
	Failures  int                `json:"failures,omitempty"`
	ExitCode  *int               `json:"exitCode,omitempty"` // exit code of the last check
	Output    string             `json:"output,omitempty"`   // at most hutch.MaxHealthOutput bytes
	CheckedMS int64              `json:"checkedMs,omitempty"`
}

// Exit ends a start or an attach.
type Exit struct {
	State    hutch.ProcessStatus `json:"state"` // still running, for an attach that does not follow
	Code     int                 `json:"code"`  // from wait4; 128+n for signal n
	Signal   int                 `json:"signal,omitempty"`
	TimedOut bool                `json:"timedOut,omitempty"`
	Compile  bool                `json:"compile,omitempty"` // the program that ended is the compiler (Start.Compile)
	Memory   bool                `json:"memory,omitempty"`  // the program was killed because of the memory limit (Relieve)
	Cursor   int64               `json:"cursor"`            // end of the output
}

// Stats answers ping.
type Stats struct {
	Live      int `json:"live"`      // detached processes alive
	Processes int `json:"processes"` // all processes inside, including the agent
}

// Failure is a hutch.Error on the wire.
type Failure struct {
	Kind    hutch.Kind `json:"kind"`
	Message string     `json:"message"`
	Limit   string     `json:"limit,omitempty"` // the limit that is reached, for an Exhausted error
	Cause   string     `json:"cause,omitempty"` // of an Internal error, for the daemon's log
}

// Stats and records of processes come from the agent: values out of range are refused. Code that shows their texts
// must bound them.

func (s *Stats) UnmarshalJSON(b []byte) error {
	type plain Stats
	if err := json.Unmarshal(b, (*plain)(s)); err != nil {
		return err
	}
	if s.Live < 0 || s.Processes < 0 {
		return fmt.Errorf("%d of %d processes alive", s.Live, s.Processes)
	}
	return nil
}

// lastMS is the last millisecond of the year 9999, the end of JSON times.
const lastMS = 253402300799999

func (p *Process) UnmarshalJSON(b []byte) error {
	type plain Process
	if err := json.Unmarshal(b, (*plain)(p)); err != nil {
		return err
	}
	if p.PID < 0 || p.Restarts < 0 || p.StartMS < 0 || p.StartMS > lastMS || p.EndMS < 0 || p.EndMS > lastMS {
		return fmt.Errorf("process %d: %d restarts, from %d to %d", p.PID, p.Restarts, p.StartMS, p.EndMS)
	}
	if p.ExitCode != nil && (*p.ExitCode < 0 || *p.ExitCode > 255) {
		return fmt.Errorf("process %d: exit code %d", p.PID, *p.ExitCode)
	}
	if p.Signal < 0 || p.Signal > 64 {
		return fmt.Errorf("process %d: ended by signal %d", p.PID, p.Signal)
	}
	if p.Terminal != nil && p.Terminal.Check() != nil {
		return fmt.Errorf("process %d: a terminal of %v", p.PID, *p.Terminal)
	}
	if p.StopSignal < 0 || p.StopSignal > 64 {
		return fmt.Errorf("process %d: the stop signal %d", p.PID, p.StopSignal)
	}
	if h := p.Health; h != nil && (h.Failures < 0 || h.CheckedMS < 0 || h.CheckedMS > lastMS || h.ExitCode != nil && (*h.ExitCode < 0 || *h.ExitCode > 255)) {
		return fmt.Errorf("process %d: a health of %d failures at %d", p.PID, h.Failures, h.CheckedMS)
	}
	return nil
}

// processes decodes a list element by element: an array of empty records takes a hundred times the memory of its text.
type processes []Process

// maxProcesses is the longest list that the daemon accepts.
const maxProcesses = 4096

func (ps *processes) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return fmt.Errorf("%v instead of a list of processes: %w", t, err)
	}
	for dec.More() {
		if len(*ps) == maxProcesses {
			return fmt.Errorf("a list of more than %d processes", maxProcesses)
		}
		var p Process
		if err := dec.Decode(&p); err != nil {
			return err
		}
		*ps = append(*ps, p)
	}
	return nil
}
