package mcp

import (
	"context"
	"hutch/internal/caller"
	"log/slog"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
)

// sessions are the sessions that can own sandboxes: each MCP session of the older revisions, and a stdio connection.
// The value lives as long as the server, and its context is the parent of every call's context.
type sessions struct {
	svc    hutch.Service
	log    *slog.Logger
	ctx    context.Context // done when the server closes
	cancel context.CancelFunc
	group  sync.WaitGroup // counts the goroutines that wait for the ends of sessions

	mu   sync.Mutex
	byID map[string]*session
}

// session remembers the sandboxes that its calls without a sandbox id created.
type session struct {
	who    *caller.Principal // its caller, or nil
	ctx    context.Context   // done when the session ends
	cancel context.CancelFunc

	mu        sync.Mutex
	ended     bool
	sandboxes []made
}

// made is a sandbox and the context of the call that created it: the sandbox is destroyed on behalf of the same
// caller.
type made struct {
	ctx     context.Context
	sandbox string
}

func newSessions(svc hutch.Service, log *slog.Logger) *sessions {
	ctx, cancel := context.WithCancel(context.Background())
	return &sessions{svc: svc, log: log, ctx: ctx, cancel: cancel, byID: map[string]*session{}}
}

// of returns the session for ss, or nil if the server is closing. The first call of a session registers it.
func (l *sessions) of(ss *sdk.ServerSession, who *caller.Principal) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := ss.ID()
	if s := l.byID[id]; s != nil || l.ctx.Err() != nil {
		return s
	}
	s := &session{who: who}
	s.ctx, s.cancel = context.WithCancel(l.ctx)
	l.byID[id] = s
	l.group.Go(func() { l.awaitEnd(id, s, ss) })
	return s
}

// scope returns a context that also ends when the session or the server does. The SDK does not cancel calls then; a
// deleted session waits for them.
func (l *sessions) scope(ctx context.Context, s *session) (context.Context, context.CancelFunc) {
	parent := l.ctx
	if s != nil {
		parent = s.ctx
	}
	return caller.Until(ctx, parent)
}

// awaitEnd waits for the end of a session and destroys its sandboxes.
func (l *sessions) awaitEnd(id string, s *session, ss *sdk.ServerSession) {
	ss.Wait() // the error is ignored: how the connection ended does not matter here
	s.cancel()
	l.mu.Lock()
	delete(l.byID, id)
	l.mu.Unlock()
	l.destroy(s.end())
}

// interrupt cancels the calls of a session that is about to be deleted, because the SDK would wait until they end by
// themselves. It does nothing if the session does not belong to the caller.
func (l *sessions) interrupt(id string, who *caller.Principal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.byID[id]; s != nil && (s.who == nil || who != nil && s.who.ID == who.ID) {
		s.cancel()
	}
}

// wait returns when all known sessions have been cleaned up.
func (l *sessions) wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() { l.group.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// destroy frees the sandboxes of an ended session, except those that a later call set to keepAlive.
func (l *sessions) destroy(sandboxes []made) {
	for _, m := range sandboxes {
		l.destroyOne(m, false)
	}
}

// destroyOne destroys a sandbox. If the sandbox has keepAlive, it is destroyed only if kept is true.
func (l *sessions) destroyOne(m made, kept bool) {
	ctx, cancel := context.WithTimeout(caller.Unmetered(context.WithoutCancel(m.ctx)), 30*time.Second)
	defer cancel()
	if sb, err := l.svc.Sandbox(ctx, m.sandbox); err == nil && sb.KeepAlive && !kept {
		return
	}
	if _, err := l.svc.Destroy(ctx, m.sandbox, true); err != nil {
		l.log.Warn("destroy the sandbox of an ended session", "sandbox", m.sandbox, "err", err)
	}
}

// owns records that a sandbox ends with the session. It returns false if the session has already ended; the caller must
// then destroy the sandbox.
func (s *session) owns(sandbox made) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.sandboxes = append(s.sandboxes, sandbox)
	}
	return !s.ended
}

// made reports whether a sandbox was created by a call of the session without a sandbox id.
func (s *session) made(sandbox string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.sandboxes, func(m made) bool { return m.sandbox == sandbox })
}

func (s *session) end() []made {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return s.sandboxes
}
