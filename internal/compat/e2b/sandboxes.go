package e2b

import (
	"net/http"
	"strconv"
	"time"

	"hutch"
	"hutch/internal/caller"
)

// find returns the record of the sandbox that the path names. An id that no sandbox can have is no sandbox's.
func (s *Server) find(r *http.Request) (hutch.Sandbox, error) {
	id := r.PathValue("id")
	if hutch.CheckID(id) != nil {
		return hutch.Sandbox{}, gone(id)
	}
	sb, err := s.svc.Sandbox(r.Context(), id)
	if err == nil && stateOf(sb) == "" {
		err = gone(id)
	}
	return sb, err
}

func gone(id string) error {
	return hutch.Errorf(hutch.NotFound, "there is no sandbox %.80q: it may have ended, or never existed", id).Naming(hutch.AboutSandbox, head(id))
}

func (s *Server) get(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	sb, err := s.find(r)
	if err != nil {
		return 0, nil, err
	}
	who, err := s.holder(r.Context())
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, s.detail(who, sb), nil
}

func (s *Server) kill(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	id := r.PathValue("id")
	if hutch.CheckID(id) != nil {
		return 0, nil, gone(id)
	}
	if _, err := s.svc.Sandbox(r.Context(), id); err != nil {
		return 0, nil, err
	}
	_, err := s.svc.Destroy(r.Context(), id, true)
	return http.StatusNoContent, nil, err
}

// connect resumes a paused sandbox, and makes the life of a running one longer, never shorter.
func (s *Server) connect(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req struct {
		Timeout *float64 `json:"timeout"`
		Memory  *bool    `json:"memory"`
	}
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	if req.Memory != nil && !*req.Memory {
		return 0, nil, unsupported("memory")
	}
	timeout := float64(timeoutV2)
	if req.Timeout != nil {
		timeout = *req.Timeout
	}
	return s.open(r, timeout)
}

// resume is the older form of connect.
func (s *Server) resume(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req struct {
		Timeout   *float64 `json:"timeout"`
		AutoPause *bool    `json:"autoPause"`
	}
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	timeout := float64(timeoutV1)
	if req.Timeout != nil {
		timeout = *req.Timeout
	}
	status, body, err := s.open(r, timeout)
	if err == nil && status == http.StatusOK {
		return 0, nil, hutch.Errorf(hutch.Conflict, "the sandbox %q is running already", r.PathValue("id"))
	}
	return status, body, err
}

func (s *Server) open(r *http.Request, timeout float64) (int, any, error) {
	seconds, err := checkTimeout(timeout)
	if err != nil {
		return 0, nil, err
	}
	who, err := s.holder(r.Context())
	if err != nil {
		return 0, nil, err
	}
	sb, err := s.find(r)
	if err != nil {
		return 0, nil, err
	}
	if stateOf(sb) == running {
		err := s.extend(r, sb, seconds)
		return http.StatusOK, s.opened(who, sb), err
	}
	// The new end is set first: a sandbox that woke without one would never end.
	if err := s.setTimeout(r, sb, seconds); err != nil {
		return 0, nil, err
	}
	if sb, err = s.svc.Resume(r.Context(), sb.ID); err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, s.opened(who, sb), nil
}

// extend lets a running sandbox live for at least so long from now on.
func (s *Server) extend(r *http.Request, sb hutch.Sandbox, timeout hutch.Seconds) error {
	if !end(sb).Before(time.Now().Add(timeout.Duration())) {
		return nil
	}
	return s.setTimeout(r, sb, timeout)
}

func (s *Server) setTimeout(r *http.Request, sb hutch.Sandbox, timeout hutch.Seconds) error {
	change := hutch.UpdateRequest{Timeout: &timeout}
	if !sb.KeepAlive { // it pauses at its end
		change = hutch.UpdateRequest{SleepAfter: &timeout}
	}
	_, err := s.svc.Update(r.Context(), sb.ID, change)
	return err
}

func (s *Server) timeout(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req struct {
		Timeout *float64 `json:"timeout"`
	}
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	if req.Timeout == nil {
		return 0, nil, hutch.Errorf(hutch.Invalid, "give the timeout, in seconds").Naming(hutch.AboutField, "timeout")
	}
	seconds, err := checkTimeout(*req.Timeout)
	if err != nil {
		return 0, nil, err
	}
	sb, err := s.find(r)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, s.setTimeout(r, sb, seconds)
}

// refresh is the older form of a longer timeout.
func (s *Server) refresh(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req struct {
		Duration float64 `json:"duration"`
	}
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	seconds, err := checkTimeout(req.Duration)
	if err != nil {
		return 0, nil, err
	}
	sb, err := s.find(r)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, s.extend(r, sb, seconds)
}

// pause freezes a sandbox, and ends what clients follow in it. A paused sandbox has no end: E2B keeps it until it is
// killed.
func (s *Server) pause(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req struct {
		Memory *bool `json:"memory"`
	}
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	if req.Memory != nil && !*req.Memory {
		return 0, nil, unsupported("memory")
	}
	sb, err := s.find(r)
	if err != nil {
		return 0, nil, err
	}
	if stateOf(sb) == paused {
		return 0, nil, hutch.Errorf(hutch.Conflict, "the sandbox %q is paused already", sb.ID)
	}
	owner, _ := caller.OwnerOf(r.Context()) // and not the sandbox's: who only shares it ends nothing of others
	s.calls.end(place{owner.ID, sb.ID})
	if _, err := s.svc.Pause(r.Context(), sb.ID); err != nil {
		return 0, nil, notNow(err)
	}
	var never hutch.Seconds
	_, err = s.svc.Update(r.Context(), sb.ID, hutch.UpdateRequest{Timeout: &never})
	return http.StatusNoContent, nil, err
}

// notNow returns the error of a pause. E2B's clients take a conflict for a sandbox that is paused already.
func notNow(err error) error {
	if hutch.KindOf(err) != hutch.Conflict {
		return err
	}
	return hutch.Errorf(hutch.Unavailable, "%s", hutch.AsError(err).Message)
}

// metric is one sample. E2B has one of every five seconds; this server has the present one.
type metric struct {
	Timestamp time.Time `json:"timestamp"`
	Unix      int64     `json:"timestampUnix"`
	CPUCount  int       `json:"cpuCount"`
	CPUUsed   float64   `json:"cpuUsedPct"`
	MemUsed   int64     `json:"memUsed"`
	MemTotal  int64     `json:"memTotal"`
	MemCache  int64     `json:"memCache"`
	DiskUsed  int64     `json:"diskUsed"`
	DiskTotal int64     `json:"diskTotal"`
}

const (
	mebi   = 1 << 20
	bucket = 5 * time.Second // of E2B's metrics
)

func (s *Server) metrics(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	sb, err := s.find(r)
	if err != nil {
		return 0, nil, err
	}
	now := time.Now().UTC().Truncate(time.Second)
	from, to, err := span(r, sb, now)
	if err != nil {
		return 0, nil, err
	}
	if stateOf(sb) != running || now.Before(from) || now.After(to.Add(bucket)) {
		return http.StatusOK, []metric{}, nil
	}
	l := list(sb)
	return http.StatusOK, []metric{{
		Timestamp: now, Unix: now.Unix(), CPUCount: l.CPUCount, CPUUsed: sb.Resources.CPU / max(sb.Limits.CPU, 1),
		MemUsed: int64(sb.Resources.Memory * mebi), MemTotal: int64(sb.Limits.Memory) * mebi,
		DiskUsed: s.diskUsed(r, sb.ID), DiskTotal: int64(sb.Limits.Disk) * mebi,
	}}, nil
}

// span is the time that a client asks about.
func span(r *http.Request, sb hutch.Sandbox, now time.Time) (from, to time.Time, err error) {
	from, to = sb.CreatedAt.Truncate(time.Second), now
	for name, at := range map[string]*time.Time{"start": &from, "end": &to} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		unix, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return from, to, hutch.Errorf(hutch.Invalid, "%s is %.40q: give Unix seconds", name, text).Naming(hutch.AboutField, name)
		}
		*at = time.Unix(unix, 0)
	}
	return from, to, nil
}

func (s *Server) diskUsed(r *http.Request, id string) int64 {
	if s.opt.Accounts == nil {
		return 0
	}
	report, err := s.opt.Accounts.Usage(r.Context())
	if err != nil {
		return 0
	}
	for _, u := range report.Sandboxes {
		if u.SandboxID == id {
			return int64(u.Disk * mebi)
		}
	}
	return 0
}
