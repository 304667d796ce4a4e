package bridge

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"hutch"
	"hutch/internal/compat"
	"hutch/internal/httpio"
)

const pingTime = 15 * time.Second // between comments on a silent stream

// timedOut is the exit code of a command that the time limit ended, as with timeout(1).
const timedOut = 124

// command is the body of an exec.
type command struct {
	Argv    []string `json:"argv"`
	Timeout *float64 `json:"timeout_ms"`
	Dir     *string  `json:"cwd"`
}

// request turns the command into a request of Hutch. A session gets the whole command line, so that cd and export keep their effect.
func (c command) request(session string, longest time.Duration) (hutch.ExecRequest, error) {
	if len(c.Argv) == 0 {
		return hutch.ExecRequest{}, hutch.Errorf(hutch.Invalid, "argv must be a non-empty array")
	}
	req := hutch.ExecRequest{Command: hutch.CommandLine(c.Argv...), StreamOnly: true, SessionID: session, Timeout: hutch.InSeconds(longest)}
	if c.Timeout != nil && *c.Timeout > 0 {
		// The service refuses a timeout over the server's limit; its error names that limit.
		req.Timeout = hutch.Seconds(math.Min(*c.Timeout/1000, 1e9))
	}
	if c.Dir == nil || *c.Dir == "" {
		return req, req.Check()
	}
	dir, ok := inWorkspace(*c.Dir)
	switch {
	case !ok:
		return req, errOutside
	case session != "": // the session stays in its folder
		req.Command = "( cd -- " + hutch.CommandLine(workspace+"/"+dir) + " && " + req.Command + " )"
	case dir != ".":
		req.Dir = workspace + "/" + dir
	}
	return req, req.Check()
}

// errOutside is answered with 403, as the original does.
var errOutside = errors.New("outside of the workspace")

// exec runs a command and sends its output while it runs.
func (h *Handler) exec(w http.ResponseWriter, r *http.Request, id string) {
	session, ok := h.session(w, r, r.Header.Get("Session-Id"))
	if !ok {
		return
	}
	var c command
	err := compat.ReadJSON(w, r, &c)
	var req hutch.ExecRequest
	if err == nil {
		req, err = c.request(session, h.longest)
	}
	switch {
	case errors.Is(err, errOutside):
		h.refuse(w, r, http.StatusForbidden, codeRequest, "cwd must resolve to a location within /workspace")
	case err != nil:
		h.fail(w, r, err, codeTransport)
	default:
		h.run(w, r, id, req)
	}
}

// session returns the id of the context that a request names, or "". It answers with an error if the name is not a
// session id.
func (h *Handler) session(w http.ResponseWriter, r *http.Request, name string) (string, bool) {
	if name == "" {
		return "", true
	}
	id, ok := contextID(name)
	if !ok {
		h.refuse(w, r, http.StatusBadRequest, codeRequest, "Invalid session ID format")
	}
	return id, ok
}

func (h *Handler) run(w http.ResponseWriter, r *http.Request, id string, req hutch.ExecRequest) {
	es := &events{Events: httpio.NewEvents(h.writer(w, r), pingTime)}
	defer es.Close()
	var res hutch.ExecResult
	err := compat.OnFirstUse(r.Context(), h.svc, id, func() (err error) {
		res, err = h.svc.Exec(r.Context(), id, req, es.output)
		if err != nil && (es.Begun() || !res.Timestamp.IsZero()) {
			return hutch.Errorf(hutch.Unavailable, "%s", h.message(r, err)) // the command must not run again
		}
		return err
	})
	switch {
	case err == nil:
		es.exit(res, req.Timeout)
	case es.Begun():
		es.Close()
		es.send("error", Failure{h.message(r, err), codeExec})
	default:
		es.Close()
		h.fail(w, r, err, codeTransport)
	}
}

// events is the output of a command as server-sent events.
type events struct {
	*httpio.Events
	buf  []byte
	open bool // the last line of stderr has no line end yet
}

func (es *events) output(o hutch.Output) error {
	if o.Stream == hutch.Stderr && len(o.Data) > 0 {
		es.open = o.Data[len(o.Data)-1] != '\n'
	}
	es.buf = base64.StdEncoding.AppendEncode(es.buf[:0], o.Data)
	return es.Send("", string(o.Stream), es.buf)
}

// exit sends how a command ended.
func (es *events) exit(res hutch.ExecResult, limit hutch.Seconds) {
	code := res.ExitCode
	if res.TimedOut {
		code = timedOut
		text := fmt.Sprintf("Command timed out after %dms\n", limit.Duration().Milliseconds())
		if es.open {
			text = "\n" + text
		}
		es.output(hutch.Output{Stream: hutch.Stderr, Data: []byte(text)})
	}
	es.send("exit", map[string]int{"exit_code": code})
}

func (es *events) send(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return es.Send("", name, b)
}
