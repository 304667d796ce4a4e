package librechat

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/compat"
)

// execution is the body of exec.
type execution struct {
	Code  string   `json:"code"`
	Lang  string   `json:"lang"`
	Args  []string `json:"args"`
	Files []input  `json:"files"`
	Hint  string   `json:"runtime_session_hint"`

	// Clients send these, too. They change nothing: the token of the request says who calls, and files name their own
	// session and owner.
	User    any `json:"user_id"`
	Session any `json:"session_id"`
	Entity  any `json:"entity_id"`
	Key     any `json:"LIBRECHAT_CODE_API_KEY"`
}

// input names a file that the code gets.
type input struct {
	ID       string      `json:"id"`
	Storage  string      `json:"storage_session_id"`
	Session  string      `json:"session_id"` // from older releases
	Name     string      `json:"name"`
	Kind     string      `json:"kind"`
	Resource string      `json:"resource_id"`
	Version  json.Number `json:"version"`
	Entity   string      `json:"entity_id"`

	// Clients send back these fields of a file that an execution left.
	Path      any `json:"path"`
	Inherited any `json:"inherited"`
	Origin    any `json:"modified_from"`
}

func (in input) session() string { return cmp.Or(in.Storage, in.Session) }

func (in input) owner() (owned, error) {
	return named(func(field string) string {
		return map[string]string{"kind": in.Kind, "id": in.Resource, "version": in.Version.String(), "entity_id": in.Entity}[field]
	})
}

// The limits of an execution.
const (
	maxInputs = 200
	maxArgs   = 100
	maxOutput = 1 << 20 // bytes of each stream
)

var isHint = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`).MatchString

// languages are LibreChat's names that are not Hutch's.
var languages = map[string]string{"py": "python", "js": "javascript", "bun": "javascript", "node": "javascript", "nodejs": "javascript", "ts": "typescript", "cpp": "c++", "rs": "rust", "sh": "bash"}

// decode reads the body of an execution. A field that this server does not have is Invalid here, and not Unsupported:
// clients show the model that its request was wrong for status 400, and an outage for 501.
func decode(body []byte) (execution, error) {
	var e execution
	err := compat.Decode(body, &e)
	if hutch.KindOf(err) == hutch.Unsupported {
		err = hutch.Errorf(hutch.Invalid, "%s", hutch.AsError(err).Message)
	}
	if err == nil {
		err = e.check()
	}
	return e, err
}

func (e *execution) check() error {
	switch {
	case e.Code == "" || e.Lang == "":
		return hutch.Errorf(hutch.Invalid, "code and lang are required")
	case len(e.Files) > maxInputs || len(e.Args) > maxArgs:
		return hutch.Errorf(hutch.Invalid, "there are more than %d files or %d args", maxInputs, maxArgs)
	case e.Hint != "" && !isHint(e.Hint):
		return hutch.Errorf(hutch.Invalid, "runtime_session_hint may only contain letters, digits, \".\", \"_\", \":\" and \"-\", at most 128")
	}
	e.Lang = strings.ToLower(e.Lang)
	e.Lang = cmp.Or(languages[e.Lang], e.Lang)
	for i, in := range e.Files {
		if !isID(in.ID) || !isID(in.session()) {
			return hutch.Errorf(hutch.Invalid, "files[%d]: id and storage_session_id are 21 letters, digits, - and _", i)
		}
		if err := checkName(in.Name); err != nil {
			return err
		}
		if _, err := in.owner(); err != nil {
			return err
		}
	}
	return nil
}

// ended is how a program ended.
type ended struct {
	Stdout  string  `json:"stdout"`
	Stderr  string  `json:"stderr"`
	Code    *int    `json:"code"`
	Signal  *string `json:"signal"`
	Output  string  `json:"output,omitempty"`
	Memory  *int    `json:"memory,omitempty"`
	Message *string `json:"message"`
	Status  *string `json:"status"`
	CPU     *int    `json:"cpu_time,omitempty"`
	Wall    int64   `json:"wall_time"` // ms
}

// answer is the JSON that exec returns. Newer releases of LibreChat read the fields of ended, older releases the field
// run.
type answer struct {
	Session  string   `json:"session_id"`
	Language string   `json:"language"`
	Version  string   `json:"version"`
	Run      ended    `json:"run"`
	Files    []output `json:"files"`
	Deleted  []string `json:"deleted_files,omitempty"` // input files that the code deleted; the client no longer sends them
	ended
}

func (h *Handler) exec(w http.ResponseWriter, r *http.Request) error {
	body, err := compat.ReadBody(w, r)
	if err != nil {
		return err
	}
	e, err := decode(body)
	if err != nil {
		return err
	}
	req := hutch.ExecRequest{Language: e.Lang, Command: e.Code, Args: e.Args, Env: map[string]string{"MPLBACKEND": "Agg"}, Timeout: hutch.InSeconds(h.opt.Timeout), StreamOnly: true}
	if err := req.Check(); err != nil {
		return err
	}
	run := &run{h: h, who: personOf(r.Context()), session: newSession(), execution: e, req: req, out: compat.Collected{Max: maxOutput}}
	if err := run.inSandbox(r.Context()); err != nil {
		return err
	}
	return h.answer(w, r, http.StatusOK, run.answer())
}

// run is an execution that has not ended.
type run struct {
	h       *Handler
	who     Person
	session string // session of its output files
	execution
	req    hutch.ExecRequest
	out    compat.Collected
	result hutch.ExecResult
	files  []output
	gone   []string // input files that the code deleted
	notes  []string // about files, for stderr
	unsaid int      // number of further notes
}

// inSandbox runs in a new sandbox, or in the sandbox of the runtime session.
func (r *run) inSandbox(ctx context.Context) error {
	req := hutch.CreateRequest{Image: r.h.opt.Image, Labels: map[string]string{"librechat": "code"}}
	if r.Hint == "" {
		return compat.Once(ctx, r.h.svc, r.h.log, req, 2*r.h.opt.Timeout, func(sandbox string) error { return r.do(ctx, sandbox) })
	}
	req.ID = conversationOf(r.who, r.Hint)
	if err := r.h.kept.Use(ctx, req, func() error { return r.h.svc.Mkdir(ctx, req.ID, ".", true) }); err != nil {
		return err
	}
	return r.do(ctx, req.ID)
}

func (r *run) do(ctx context.Context, sandbox string) error {
	if err := r.prepare(ctx, sandbox); err != nil {
		return err
	}
	for _, in := range r.Files {
		if err := r.bring(ctx, sandbox, in); err != nil {
			return err
		}
	}
	before, err := r.look(ctx, sandbox)
	if err != nil {
		return err
	}
	r.result, err = r.h.svc.Exec(ctx, sandbox, r.req, r.out.Add(ctx))
	if err != nil && r.out.Full == "" {
		return err
	}
	if r.failed() {
		return nil // as in LibreChat's own service, a failed execution leaves no files
	}
	return r.collect(ctx, sandbox, before)
}

// prepare shows the working folder as /mnt/data, if possible. The host image has it already.
func (r *run) prepare(ctx context.Context, sandbox string) error {
	if r.h.opt.Image == "" {
		return nil
	}
	_, err := r.h.svc.Exec(ctx, sandbox, hutch.ExecRequest{Command: `[ -e /mnt/data ] || { mkdir -p /mnt && ln -s "$PWD" /mnt/data; } 2>/dev/null; true`, Timeout: 10}, nil)
	return err
}

// bring copies an input file into the sandbox. In a runtime session it replaces a file with the same name, because the
// content can differ even if the size is the same.
func (r *run) bring(ctx context.Context, sandbox string, in input) error {
	owner, err := in.owner()
	if err != nil {
		return err
	}
	st := storeOf(r.who, owner)
	f, err := r.h.file(ctx, st, in.session(), in.ID)
	if err != nil {
		return err
	}
	return r.h.copy(ctx, st.sandbox, f.path, func(content io.Reader) error {
		_, err := r.h.svc.WriteFile(ctx, sandbox, hutch.WriteRequest{Path: in.Name, Parents: true}, content)
		return err
	})
}

func (r *run) failed() bool { return r.out.Full != "" || !r.result.Success() }

// answer describes the execution.
func (r *run) answer() answer {
	e := ended{Stdout: r.out.Stdout(), Stderr: r.out.Stderr(), Code: &r.result.ExitCode, Wall: r.result.Duration.Milliseconds()}
	say := func(status, message string) {
		e.Status, e.Message = &status, &message
		e.Stderr += "\n" + message
	}
	signal := unix.SignalName(unix.Signal(r.result.ExitCode - 128))
	switch {
	case r.out.Full != "":
		killed := "SIGKILL"
		e.Signal, e.Code = &killed, nil
		say("OL", string(r.out.Full)+" length exceeded")
	case r.result.TimedOut:
		killed := "SIGKILL"
		e.Signal, e.Code = &killed, nil
		say("TO", "Time limit exceeded")
	case r.result.Limit != "":
		say("SG", cmp.Or(map[string]string{"memory": "Out of memory"}[r.result.Limit], "the limit of the sandbox is reached: "+r.result.Limit))
	case signal != "":
		e.Signal = &signal
	}
	if r.unsaid > 0 {
		r.notes = append(r.notes, fmt.Sprintf("and %d more are not returned", r.unsaid))
	}
	if len(r.notes) > 0 {
		e.Stderr += "\n" + strings.Join(r.notes, "\n")
	}
	var both bytes.Buffer
	fmt.Fprint(&both, e.Stdout, e.Stderr)
	a := answer{Session: r.session, Language: r.Lang, Version: "*", Files: r.files, Deleted: r.gone, ended: e, Run: e}
	a.Run.Output = both.String()
	if a.Files == nil {
		a.Files = []output{}
	}
	return a
}
