package mcp

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/auth"
)

// sessions are those that may own sandboxes: one for each MCP session of the
// older revisions, one for a stdio connection. It lives as long as the server
// does; its context is the parent of every call.
type sessions struct {
	svc    hutch.Service
	log    *slog.Logger
	ctx    context.Context // done when the server closes
	cancel context.CancelFunc
	group  sync.WaitGroup // one for each session's end

	mu   sync.Mutex
	byID map[string]*session
}

// session remembers the sandboxes that were made in it without an id.
type session struct {
	who    *auth.Principal // whose it is, if anybody's
	ctx    context.Context // done when the session ends
	cancel context.CancelFunc

	mu        sync.Mutex
	ended     bool
	sandboxes []made
}

// made is a sandbox, and the context of the call that it was made for: it is
// destroyed on behalf of the same.
type made struct {
	ctx     context.Context
	sandbox string
}

func newSessions(svc hutch.Service, log *slog.Logger) *sessions {
	ctx, cancel := context.WithCancel(context.Background())
	return &sessions{svc: svc, log: log, ctx: ctx, cancel: cancel, byID: map[string]*session{}}
}

// of returns the session that ss is, or nil when the server closes. The first
// call of a session makes it known here.
func (l *sessions) of(ss *sdk.ServerSession, who *auth.Principal) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := ss.ID()
	if s := l.byID[id]; s != nil || l.ctx.Err() != nil {
		return s
	}
	s := &session{who: who}
	s.ctx, s.cancel = context.WithCancel(l.ctx)
	l.byID[id] = s
	l.group.Go(func() { l.attend(id, s, ss) })
	return s
}

// scope is ctx, done also when the session or the server ends. The SDK cancels
// neither: a deleted session waits for its calls.
func (l *sessions) scope(ctx context.Context, s *session) (context.Context, context.CancelFunc) {
	parent := l.ctx
	if s != nil {
		parent = s.ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(parent, cancel)
	return ctx, func() { stop(); cancel() }
}

// attend waits for the end of a session and destroys what it leaves.
func (l *sessions) attend(id string, s *session, ss *sdk.ServerSession) {
	ss.Wait() // its error says how the connection ended, which changes nothing
	s.cancel()
	l.mu.Lock()
	delete(l.byID, id)
	l.mu.Unlock()
	l.destroy(s.end())
}

// interrupt cancels the calls of a session that is about to be deleted: the
// SDK would wait for them to end by themselves. It deletes nobody else's.
func (l *sessions) interrupt(id string, who *auth.Principal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.byID[id]; s != nil && (s.who == nil || who != nil && s.who.ID == who.ID) {
		s.cancel()
	}
}

// wait returns when all sessions that were known have been cleaned up after.
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

// destroy frees the sandboxes of an ended session, but those that someone has
// since asked to be kept alive.
func (l *sessions) destroy(sandboxes []made) {
	for _, m := range sandboxes {
		l.destroyOne(m, false)
	}
}

// destroyOne frees a sandbox; when it is kept alive, only if kept says so.
func (l *sessions) destroyOne(m made, kept bool) {
	ctx, cancel := context.WithTimeout(auth.Unmetered(context.WithoutCancel(m.ctx)), 30*time.Second)
	defer cancel()
	if sb, err := l.svc.Sandbox(ctx, m.sandbox); err == nil && sb.KeepAlive && !kept {
		return
	}
	if _, err := l.svc.Destroy(ctx, m.sandbox, true); err != nil {
		l.log.Warn("destroy the sandbox of an ended session", "sandbox", m.sandbox, "err", err)
	}
}

// owns notes that sandbox goes when the session does. It is false when the
// session has ended: then nobody but the caller will free it.
func (s *session) owns(sandbox made) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.sandboxes = append(s.sandboxes, sandbox)
	}
	return !s.ended
}

// made reports whether a sandbox was made in the session without an id.
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
