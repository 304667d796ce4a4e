package swerex

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/compat"
)

const (
	prompt     = "SHELLPS1PREFIX" // the prompt that the client expects
	shellName  = "swerex "        // begins the names of the processes that are sessions
	maxName    = 50
	killSignal = 9

	minStart = 10 * time.Second // for the start of a session; clients give 1 s by default
	endTime  = 10               // s, for a killed shell to end
)

func isShell(p hutch.Process) bool {
	return strings.HasPrefix(p.Name, shellName) && p.Terminal != nil && p.Status.Live()
}

// session finds the live shell of a session: the oldest one with its name.
func (h *Handler) session(ctx context.Context, sandbox, name string) (p hutch.Process, found bool, err error) {
	list, err := h.svc.Processes(ctx, sandbox)
	if err != nil {
		return p, false, err
	}
	i := slices.IndexFunc(list, func(p hutch.Process) bool { return isShell(p) && p.Name == shellName+name })
	if i < 0 {
		return p, false, nil
	}
	return list[i], true, nil
}

// existing does the same as session, for a session that must exist.
func (h *Handler) existing(ctx context.Context, sandbox, name string) (hutch.Process, error) {
	p, found, err := h.session(ctx, sandbox, name)
	if err != nil && !compat.Missing(err) {
		return p, err
	}
	if !found {
		return p, throw(classMissing, fmt.Sprintf("session %q does not exist", name))
	}
	return p, nil
}

// limit returns a time limit of a request, or the usual one.
func (h *Handler) limit(given *float64, usual time.Duration) (time.Duration, error) {
	switch {
	case given == nil:
		return usual, nil
	case *given > h.longest.Seconds():
		return 0, hutch.Errorf(hutch.Invalid, "timeout is %v s: give up to %v", hutch.Seconds(*given), hutch.InSeconds(h.longest))
	}
	return max(hutch.Seconds(max(*given, 0)).Duration(), time.Millisecond), nil
}

// sessionRequest is the body of create_session.
type sessionRequest struct {
	Source  []string `json:"startup_source"`
	Session string   `json:"session"`
	Type    string   `json:"session_type"`
	Timeout *float64 `json:"startup_timeout"`
}

// check refuses a request that no server could do.
func (req sessionRequest) check() error {
	if req.Type != "bash" || len(req.Session) > maxName || req.Session == "" {
		return hutch.Errorf(hutch.Invalid, "a session has session_type bash and a name of 1 to %d bytes", maxName).Because(errBody)
	}
	if len(req.commands()) > hutch.MaxCommand {
		return hutch.Errorf(hutch.Invalid, "startup_source is over the limit of %d bytes", hutch.MaxCommand).Because(errBody)
	}
	return nil
}

// commands returns the first commands of a new shell. The files can set another prompt, so the prompt that clients
// expect is set after them.
func (req sessionRequest) commands() string {
	var all strings.Builder
	for _, file := range req.Source {
		all.WriteString("source " + file + "\n")
	}
	all.WriteString("bind 'set enable-bracketed-paste off' 2>/dev/null\nexport PS1=" + prompt + " PS2= PS0=\n")
	return all.String()
}

func (h *Handler) createSession(w http.ResponseWriter, r *http.Request, sandbox string) (any, error) {
	ctx := r.Context()
	req := sessionRequest{Session: "default", Type: "bash"}
	if err := body(w, r, &req); err != nil {
		return nil, err
	}
	if err := req.check(); err != nil {
		return nil, err
	}
	limit, err := h.limit(req.Timeout, minStart)
	if err != nil {
		return nil, err
	}
	var p hutch.Process
	err = compat.OnFirstUse(ctx, h.svc, sandbox, func() (err error) {
		p, err = h.startShell(ctx, sandbox, req.Session)
		return err
	})
	if err != nil {
		return nil, err
	}
	output, err := h.prepare(ctx, sandbox, p.ID, req.commands(), max(limit, minStart))
	if err != nil { // otherwise the client could not create the session again
		h.abandon(ctx, sandbox, p.ID)
		return nil, err
	}
	return map[string]string{"output": output, "session_type": "bash"}, nil
}

// startShell starts the shell of a session. If two calls create one session at once, the older shell is kept.
func (h *Handler) startShell(ctx context.Context, sandbox, name string) (p hutch.Process, err error) {
	exists := throw(classExists, "session "+name+" already exists")
	if _, found, err := h.session(ctx, sandbox, name); err != nil {
		return p, err
	} else if found {
		return p, exists
	}
	p, err = h.svc.StartProcess(ctx, sandbox, hutch.ProcessRequest{
		Command: "stty -echo; exec bash", Name: shellName + name, Terminal: &hutch.Size{Columns: 200, Rows: 24},
		Env: map[string]string{"PS1": prompt, "PS2": "", "PS0": ""},
	})
	if err != nil {
		return p, err
	}
	if first, found, err := h.session(ctx, sandbox, name); err != nil || found && first.ID != p.ID {
		h.abandon(ctx, sandbox, p.ID)
		if err == nil {
			err = exists
		}
		return p, err
	}
	return p, nil
}

// prepare runs the first commands of a session.
func (h *Handler) prepare(ctx context.Context, sandbox, process, commands string, limit time.Duration) (string, error) {
	sh, err := h.shells.take(ctx, h.svc, sandbox, process)
	if err != nil {
		return "", err
	}
	defer h.shells.release(sh)
	sh.cursor = 0
	got, err := sh.run(ctx, action{Command: commands, Check: "silent"}, nil, limit)
	return got.Output, err
}

// abandon ends a shell that no client will use, even if the client has disconnected.
func (h *Handler) abandon(ctx context.Context, sandbox, process string) {
	ctx, cancel := compat.Cleanup(ctx)
	defer cancel()
	h.shells.forget(ctx, sandbox, process)
	if err := h.svc.Signal(ctx, sandbox, process, killSignal); err != nil && !ended(err) {
		h.log.Warn("the shell of a session is left; it ends with its sandbox", "sandbox", sandbox, "process", process, "err", err)
	}
}

// ended reports whether a process cannot be signalled because it has ended.
func ended(err error) bool {
	kind := hutch.KindOf(err)
	return kind == hutch.NotFound || kind == hutch.Conflict
}

// end ends a session and everything in it. When it returns, the name can be used again.
func (h *Handler) end(ctx context.Context, sandbox, process string) error {
	h.shells.forget(ctx, sandbox, process)
	err := h.svc.Signal(ctx, sandbox, process, killSignal)
	if err == nil {
		_, err = h.svc.Wait(ctx, sandbox, process, hutch.WaitRequest{Timeout: endTime})
	}
	if err != nil && ended(err) {
		return nil
	}
	return err
}

func (h *Handler) closeSession(w http.ResponseWriter, r *http.Request, sandbox string) (any, error) {
	req := struct {
		Session string `json:"session"`
		Type    string `json:"session_type"`
	}{Session: "default"}
	if err := body(w, r, &req); err != nil {
		return nil, err
	}
	p, err := h.existing(r.Context(), sandbox, req.Session)
	if err != nil {
		return nil, err
	}
	return map[string]string{"session_type": "bash"}, h.end(r.Context(), sandbox, p.ID)
}

// close ends all sessions.
func (h *Handler) close(_ http.ResponseWriter, r *http.Request, sandbox string) (any, error) {
	list, err := h.svc.Processes(r.Context(), sandbox)
	if err != nil && !compat.Missing(err) {
		return nil, err
	}
	for _, p := range list {
		if !isShell(p) {
			continue
		}
		if err := h.end(r.Context(), sandbox, p.ID); err != nil {
			return nil, err
		}
	}
	return struct{}{}, nil
}
