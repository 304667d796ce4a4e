package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"hutch"
)

const (
	TypeBegun   Type = 'b'
	TypeMessage Type = 'm'
)

const (
	// MaxContexts is how many contexts a sandbox can have at once.
	MaxContexts = 128
	// MaxQueued is how many runs can wait in one context.
	MaxQueued = 256
	// maxMessage is the longest message of an interpreter, all its pieces together.
	maxMessage = 8 << 20
	// MaxPiece bounds one piece of a message.
	MaxPiece = 48 << 10
	// messageStep is how much memory for messages is charged at a time. The first step is free.
	messageStep = 128 << 10
)

// errMessages is the error for a run whose messages take more memory than its caller has left.
var errMessages = hutch.Errorf(hutch.Exhausted, "the values that the code shows take more memory than the requests and answers of this token may have: wait for some of them to end, or show less at a time").With("limit", "memory of answers")

// EnvArg is replaced by the environment of a context, as a JSON object, in Context.Become.
const EnvArg = "\x00env"

// StdinArg is replaced by the path of a run's standard input in Run.Input.
const StdinArg = "\x00stdin"

// Context creates a code context: an interpreter and its queue of runs. An existing context with that id is not
// changed; without Argv no context is created.
type Context struct {
	ID       string   `json:"id"`
	Language string   `json:"language"` // for the record
	Argv     []string `json:"argv"`     // as in Start
	Source   string   `json:"source"`
	// SourceName is the name of the file that Source is written to.
	SourceName string   `json:"sourceName"`
	Dir        string   `json:"dir,omitempty"`
	User       string   `json:"user,omitempty"` // as in Start
	Env        []string `json:"env,omitempty"`
	IdleMS     int64    `json:"idleMs,omitempty"` // how long it can be without a run; 0 is for ever
	// Become is sent to a spare interpreter to turn it into this context's interpreter. The spare must be in the
	// default folder and have the same values of all variables that match a pattern of Fixed. Without Become, no spare
	// interpreter is used.
	Become string   `json:"become,omitempty"`
	Fixed  []string `json:"fixed,omitempty"`
	// Prepare is sent to a spare interpreter at its start.
	Prepare string `json:"prepare,omitempty"`
}

// ContextInfo is the agent's record of a context.
type ContextInfo struct {
	ID        string `json:"id"`
	Language  string `json:"language"`
	Dir       string `json:"dir"`
	CreatedMS int64  `json:"createdMs"` // Unix time
	UsedMS    int64  `json:"usedMs"`
	Runs      int    `json:"runs"`
	Busy      bool   `json:"busy"`
}

// Run runs code in a context.
type Run struct {
	// ID is random. It marks the run's messages.
	ID      string `json:"id"`
	Context string `json:"context"`
	// Input is sent to the interpreter. [SourceArg] and [StdinArg] in it are replaced by the paths of the run's
	// files.
	Input  string `json:"input"`
	Source string `json:"source,omitempty"` // written to a file, when it is set
	Stdin  bool   `json:"stdin,omitempty"`
	// TimeoutMS counts from the beginning of the run; waiting does not count.
	TimeoutMS int64 `json:"timeoutMs,omitempty"`
}

// Begun reports that a run has started.
type Begun struct {
	Fresh bool `json:"fresh,omitempty"` // it is the first run of its interpreter
}

// RunEnd ends a run.
type RunEnd struct {
	Code     int   `json:"code"`             // the exit code from the interpreter
	Signal   int   `json:"signal,omitempty"` // the signal that ended the interpreter
	TimedOut bool  `json:"timedOut,omitempty"`
	Ended    bool  `json:"ended,omitempty"`  // the interpreter has ended
	Memory   bool  `json:"memory,omitempty"` // the interpreter, or a process of the run, was killed because of the memory limit
	Runs     int   `json:"runs"`             // number of the context's runs
	Cursor   int64 `json:"cursor"`
}

func (c *ContextInfo) UnmarshalJSON(b []byte) error {
	type plain ContextInfo
	if err := json.Unmarshal(b, (*plain)(c)); err != nil {
		return err
	}
	if c.Runs < 0 || c.CreatedMS < 0 || c.CreatedMS > lastMS || c.UsedMS < 0 || c.UsedMS > lastMS {
		return fmt.Errorf("context with %d runs, from %d to %d", c.Runs, c.CreatedMS, c.UsedMS)
	}
	return nil
}

func (e *RunEnd) UnmarshalJSON(b []byte) error {
	type plain RunEnd
	if err := json.Unmarshal(b, (*plain)(e)); err != nil {
		return err
	}
	if e.Code < 0 || e.Code > 255 || e.Signal < 0 || e.Signal > 64 || e.Runs < 0 || e.Cursor < 0 || e.Cursor > maxCount {
		return fmt.Errorf("end of run %d with code %d and signal %d at cursor %d", e.Runs, e.Code, e.Signal, e.Cursor)
	}
	return nil
}

// contextInfos is decoded element by element, like processes.
type contextInfos []ContextInfo

func (cs *contextInfos) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return fmt.Errorf("%v instead of a list of contexts: %w", t, err)
	}
	for dec.More() {
		if len(*cs) == MaxContexts {
			return fmt.Errorf("a list of more than %d contexts", MaxContexts)
		}
		var c ContextInfo
		if err := dec.Decode(&c); err != nil {
			return err
		}
		*cs = append(*cs, c)
	}
	return nil
}

// CreateContext creates a context. An existing context with that id is returned unchanged.
func (c *Client) CreateContext(ctx context.Context, req Context) (ContextInfo, error) {
	return call[ContextInfo](ctx, c, Request{Op: "context", Context: &req})
}

// Spare makes the agent start an interpreter for a later context with the same Argv and Source, and returns when the
// interpreter is prepared.
func (c *Client) Spare(ctx context.Context, req Context) error {
	_, err := call[struct{}](ctx, c, Request{Op: "spare", Context: &req})
	return err
}

// Context returns the record of a context.
func (c *Client) Context(ctx context.Context, id string) (ContextInfo, error) {
	return call[ContextInfo](ctx, c, Request{Op: "context", Context: &Context{ID: id}})
}

// Contexts lists the contexts, oldest first.
func (c *Client) Contexts(ctx context.Context) ([]ContextInfo, error) {
	return call[contextInfos](ctx, c, Request{Op: "contexts"})
}

// DeleteContext ends a context; a missing one is not an error.
func (c *Client) DeleteContext(ctx context.Context, id string) error {
	_, err := call[struct{}](ctx, c, Request{Op: "uncontext", Context: &Context{ID: id}})
	return err
}

// Interrupt ends the current run of a context.
func (c *Client) Interrupt(ctx context.Context, id string) error {
	_, err := call[struct{}](ctx, c, Request{Op: "interrupt", Context: &Context{ID: id}})
	return err
}

// RunIn runs code in a context, to its end. Output goes to out and messages of the interpreter to message, in the
// order in which they arrive. take is called to reserve the memory in which a message is put together, and returns
// whether there is enough; without take there always is. When ctx is done or one of these functions fails, the agent
// interrupts the run, and RunIn returns that error.
func (c *Client) RunIn(ctx context.Context, r Run, stdin io.Reader, take func(bytes int) bool, out func(hutch.Output) error, message func([]byte) error) (Begun, RunEnd, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	code := &codeRun{limit: time.Duration(r.TimeoutMS) * time.Millisecond, take: take, message: message, room: messageStep}
	if code.limit > 0 { // longer, because the run can wait for earlier runs
		go c.probe(ctx, time.Now().Add(code.limit), cancel)
	}
	err := c.do(ctx, Request{Op: "run", Run: &r}, func(cn *conn, t Type, payload []byte) error {
		if t != TypeStarted {
			return broken(fmt.Errorf("frame of type %q instead of started", t))
		}
		s := &stream{conn: cn, out: out, room: make(chan int64, 1), code: code}
		return s.run(stdin)
	})
	return code.begun, code.end, err
}

// codeRun has the state that a stream needs only for a run in a context.
type codeRun struct {
	limit   time.Duration
	take    func(bytes int) bool
	message func([]byte) error
	started bool // the begun frame has arrived
	begun   Begun
	end     RunEnd
	pieces  []byte
	room    int // bytes of memory for a message, before more is taken; later messages use the same memory again
}

// frame handles the frames in which a run differs from a process.
func (r *codeRun) frame(s *stream, t Type, payload []byte) (done, mine bool, err error) {
	switch t {
	case TypeBegun:
		if r.started {
			return true, true, errors.New("a run that begins twice") // the time limit would start again
		}
		if r.started = true; r.limit > 0 {
			s.limit = time.Now().Add(r.limit)
		}
		return false, true, json.Unmarshal(payload, &r.begun)
	case TypeMessage:
		return false, true, r.piece(payload)
	case TypeExit:
		if err := json.Unmarshal(payload, &r.end); err != nil {
			return true, true, err
		}
		if r.end.Cursor < s.cursor {
			return true, true, fmt.Errorf("run ends at cursor %d after %d", r.end.Cursor, s.cursor)
		}
		return true, true, nil
	}
	return false, false, nil
}

// piece adds a piece of a message; '+' in front says that more pieces follow.
func (r *codeRun) piece(payload []byte) error {
	if len(payload) == 0 || payload[0] != '+' && payload[0] != '.' {
		return errors.New("a piece of a message that is neither within it nor its end")
	}
	if len(r.pieces)+len(payload) > maxMessage {
		return fmt.Errorf("a message of more than %d bytes", maxMessage)
	}
	for len(r.pieces)+len(payload) > r.room {
		if r.take != nil && !r.take(2*messageStep) { // the message, and what is decoded from it
			return callerError{errMessages}
		}
		r.room += messageStep
	}
	r.pieces = append(r.pieces, payload[1:]...)
	if payload[0] == '+' {
		return nil
	}
	message := r.pieces
	r.pieces = nil
	if r.message == nil {
		return nil
	}
	if err := r.message(message); err != nil {
		return callerError{err}
	}
	return nil
}
