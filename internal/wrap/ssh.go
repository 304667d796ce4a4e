package wrap

import (
	"context"

	"hutch"
	"hutch/internal/verb"
)

// SSHService is a hutch.SSH that calls Next with Hook around each call.
type SSHService struct {
	Next hutch.SSH
	Hook Hook
}

// SSHServer implements hutch.SSH.
func (s *SSHService) SSHServer(ctx context.Context) (hutch.SSHServer, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "SSHServer"}, func(ctx context.Context) (hutch.SSHServer, error) {
		return next(ctx, s).SSHServer(ctx)
	})
}

// AddSSHKey implements hutch.SSH.
func (s *SSHService) AddSSHKey(ctx context.Context, req hutch.SSHKeyRequest) (hutch.SSHKey, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "AddSSHKey", Target: req.Key, Request: req}, func(ctx context.Context) (hutch.SSHKey, error) {
		return next(ctx, s).AddSSHKey(ctx, req)
	})
}

// SSHKeys implements hutch.SSH.
func (s *SSHService) SSHKeys(ctx context.Context) ([]hutch.SSHKey, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "SSHKeys"}, func(ctx context.Context) ([]hutch.SSHKey, error) {
		return next(ctx, s).SSHKeys(ctx)
	})
}

// DeleteSSHKey implements hutch.SSH.
func (s *SSHService) DeleteSSHKey(ctx context.Context, key string) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "DeleteSSHKey", Target: key}, func(ctx context.Context) error {
		return next(ctx, s).DeleteSSHKey(ctx, key)
	})
}

// SignSSHKey implements hutch.SSH.
func (s *SSHService) SignSSHKey(ctx context.Context, req hutch.SSHSignRequest) (hutch.SSHCertificate, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "SignSSHKey", Target: req.Key, Request: req}, func(ctx context.Context) (hutch.SSHCertificate, error) {
		return next(ctx, s).SignSSHKey(ctx, req)
	})
}
