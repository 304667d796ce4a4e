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
// It lives as long as the server does; its context is the parent of every call.
type sessions struct {
	svc    hutch.Service
	log    *slog.Logger
	ctx    context.Context // done when the server closes
	cancel context.CancelFunc
	group  sync.WaitGroup // one for the end of each session

	mu   sync.Mutex
	byID map[string]*session
}

// session remembers the sandboxes that were created in it without an id.
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

// of returns the session for ss, or nil when the server closes. The first call of a session registers it.
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

// scope returns ctx that also ends when the session or the server does. The SDK cancels neither: a deleted session
// waits for its calls.
func (l *sessions) scope(ctx context.Context, s *session) (context.Context, context.CancelFunc) {
	parent := l.ctx
	if s != nil {
		parent = s.ctx
	}
	return caller.Until(ctx, parent)
}

// awaitEnd waits for the end of a session and destroys its sandboxes.
func (l *sessions) awaitEnd(id string, s *session, ss *sdk.ServerSession) {
	ss.Wait() // its error says how the connection ended, which does not matter here
	s.cancel()
	l.mu.Lock()
	delete(l.byID, id)
	l.mu.Unlock()
	l.destroy(s.end())
}

// interrupt cancels the calls of a session that is about to be deleted, because the SDK would wait until they end by
// themselves. It checks that the session belongs to the caller.
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

// destroy frees the sandboxes of an ended session, except those that were set to keepAlive later.
func (l *sessions) destroy(sandboxes []made) {
	for _, m := range sandboxes {
		l.destroyOne(m, false)
	}
}

// destroyOne frees a sandbox; one with keepAlive only if kept is true.
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

// owns records that sandbox ends with the session. It returns false if the session has ended: then the caller must
// free the sandbox.
func (s *session) owns(sandbox made) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.sandboxes = append(s.sandboxes, sandbox)
	}
	return !s.ended
}

// made reports whether a sandbox was created in the session without an id.
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
