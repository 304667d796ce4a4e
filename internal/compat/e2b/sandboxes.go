package e2b

import (
	"net/http"
	"time"

	"hutch"
	"hutch/internal/caller"
)

// find returns the record of the sandbox that the path names. An id that is not valid is not found.
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

// connect resumes a paused sandbox. It extends the life of a running sandbox, and never shortens it.
func (s *Server) connect(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req struct {
		Timeout *float64 `json:"timeout"`
		Memory  *bool    `json:"memory"`
	}
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	timeout := float64(timeoutV2)
	if req.Timeout != nil {
		timeout = *req.Timeout
	}
	return s.open(r, timeout, req.Memory == nil || *req.Memory)
}

// resume answers the older form of the request connect.
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
	if err := s.checkAutoPause(r, req.AutoPause); err != nil {
		return 0, nil, err
	}
	status, body, err := s.open(r, timeout, true)
	if err == nil && status == http.StatusOK {
		return 0, nil, hutch.Errorf(hutch.Conflict, "the sandbox %q is running already", r.PathValue("id"))
	}
	return status, body, err
}

// checkAutoPause refuses to change what happens at the end of a sandbox's timeout: this is set when the sandbox is
// created.
func (s *Server) checkAutoPause(r *http.Request, pauses *bool) error {
	if pauses == nil {
		return nil
	}
	sb, err := s.find(r)
	if err == nil && *pauses == sb.KeepAlive {
		err = unsupported("autoPause")
	}
	return err
}

// open connects to a sandbox. A paused sandbox resumes with its memory or, without memory, starts with its files.
func (s *Server) open(r *http.Request, timeout float64, memory bool) (int, any, error) {
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
	// Set the new end first: a sandbox that woke without an end would never end.
	if err := s.setTimeout(r, sb, seconds); err != nil {
		return 0, nil, err
	}
	if !memory {
		if err := s.dropMemory(r, sb); err != nil {
			return 0, nil, err
		}
	}
	if sb, err = s.svc.Resume(r.Context(), sb.ID); err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, s.opened(who, sb), nil
}

// dropMemory stops a paused sandbox. A hibernated sandbox wakes first, because a sleeping sandbox cannot be changed.
func (s *Server) dropMemory(r *http.Request, sb hutch.Sandbox) error {
	if sb.Status == hutch.Hibernated {
		if _, err := s.svc.Resume(r.Context(), sb.ID); err != nil {
			return err
		}
	}
	_, err := s.svc.Hibernate(r.Context(), sb.ID, hutch.HibernateRequest{FilesOnly: true})
	return notNow(err)
}

// extend lets a running sandbox live for at least this long from now on.
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

// refresh answers the older form of the request for a longer timeout.
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

// pause freezes a sandbox or, without memory, stops it, and ends open streams of clients. A paused sandbox has no end:
// E2B keeps it until it is killed.
func (s *Server) pause(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req struct {
		Memory *bool `json:"memory"`
	}
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	sb, err := s.find(r)
	if err != nil {
		return 0, nil, err
	}
	if stateOf(sb) == paused {
		return 0, nil, hutch.Errorf(hutch.Conflict, "the sandbox %q is paused already", sb.ID)
	}
	owner, _ := caller.OwnerOf(r.Context()) // not the sandbox's: a caller with a shared sandbox ends only its own streams
	s.calls.end(place{owner.ID, sb.ID})
	if req.Memory == nil || *req.Memory {
		_, err = s.svc.Pause(r.Context(), sb.ID)
	} else {
		_, err = s.svc.Hibernate(r.Context(), sb.ID, hutch.HibernateRequest{FilesOnly: true})
	}
	if err != nil {
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
