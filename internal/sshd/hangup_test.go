package sshd

import (
	"context"
	"testing"

	"hutch"
	"hutch/internal/caller"
)

type signalled struct {
	hutch.Service
	by *caller.Principal
}

func (s *signalled) Signal(ctx context.Context, _, _ string, signal int) error {
	if s.by = caller.From(ctx).Principal; signal != 1 || ctx.Err() != nil {
		s.by = nil
	}
	return nil
}

// TestHangUpIsFree: the terminal of a client that has left is hung up whatever the client has used up.
func TestHangUpIsFree(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(caller.As(t.Context(), &caller.Principal{ID: "tk-1", Limits: hutch.TokenLimits{Operations: 1}}))
	cancel()
	svc := &signalled{}
	s := &session{connection: &connection{server: &Server{opt: Options{Service: svc}}}}
	s.hangUp(ctx, "p")
	if svc.by == nil || svc.by.ID != "tk-1" || svc.by.Limits != caller.Unlimited {
		t.Errorf("signalled by %+v", svc.by)
	}
}
