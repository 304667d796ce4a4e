package wrap

import (
	"context"
	"strings"

	"hutch"
	"hutch/internal/verb"
)

// TokenService is a hutch.Tokens that calls Next with Hook around each call.
type TokenService struct {
	Next hutch.Tokens
	Hook Hook
}

// CreateToken implements hutch.Tokens.
func (s *TokenService) CreateToken(ctx context.Context, req hutch.TokenRequest) (hutch.MintedToken, error) {
	target := strings.TrimSpace(req.Name + " " + networkTarget(req.Network))
	return Around(ctx, s.Hook, verb.Call{Verb: "CreateToken", Target: target, Request: req}, func(ctx context.Context) (hutch.MintedToken, error) {
		return next(ctx, s).CreateToken(ctx, req)
	})
}

// Token implements hutch.Tokens.
func (s *TokenService) Token(ctx context.Context, token string) (hutch.Token, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Token", Target: token}, func(ctx context.Context) (hutch.Token, error) {
		return next(ctx, s).Token(ctx, token)
	})
}

// Tokens implements hutch.Tokens.
func (s *TokenService) Tokens(ctx context.Context) ([]hutch.Token, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Tokens"}, func(ctx context.Context) ([]hutch.Token, error) {
		return next(ctx, s).Tokens(ctx)
	})
}

// RotateToken implements hutch.Tokens.
func (s *TokenService) RotateToken(ctx context.Context, token string) (hutch.MintedToken, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "RotateToken", Target: token}, func(ctx context.Context) (hutch.MintedToken, error) {
		return next(ctx, s).RotateToken(ctx, token)
	})
}

// RevokeToken implements hutch.Tokens.
func (s *TokenService) RevokeToken(ctx context.Context, token string) (hutch.Token, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "RevokeToken", Target: token}, func(ctx context.Context) (hutch.Token, error) {
		return next(ctx, s).RevokeToken(ctx, token)
	})
}

// SecretService is a hutch.Secrets that calls Next with Hook around each call.
type SecretService struct {
	Next hutch.Secrets
	Hook Hook
}

// SetSecret implements hutch.Secrets.
func (s *SecretService) SetSecret(ctx context.Context, name string, req hutch.SecretRequest) (hutch.Secret, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "SetSecret", Target: name, Request: req}, func(ctx context.Context) (hutch.Secret, error) {
		return next(ctx, s).SetSecret(ctx, name, req)
	})
}

// Secrets implements hutch.Secrets.
func (s *SecretService) Secrets(ctx context.Context) ([]hutch.Secret, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Secrets"}, func(ctx context.Context) ([]hutch.Secret, error) {
		return next(ctx, s).Secrets(ctx)
	})
}

// DeleteSecret implements hutch.Secrets.
func (s *SecretService) DeleteSecret(ctx context.Context, name string) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "DeleteSecret", Target: name}, func(ctx context.Context) error {
		return next(ctx, s).DeleteSecret(ctx, name)
	})
}

// BackupService is a hutch.Backups that calls Next with Hook around each call.
type BackupService struct {
	Next hutch.Backups
	Hook Hook
}

// Backup implements hutch.Backups.
func (s *BackupService) Backup(ctx context.Context, sandbox string, req hutch.BackupRequest) (hutch.Backup, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Backup", Sandbox: sandbox, Target: req.Dir, Request: req}, func(ctx context.Context) (hutch.Backup, error) {
		return next(ctx, s).Backup(ctx, sandbox, req)
	})
}

// Backups implements hutch.Backups.
func (s *BackupService) Backups(ctx context.Context) ([]hutch.Backup, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Backups"}, func(ctx context.Context) ([]hutch.Backup, error) {
		return next(ctx, s).Backups(ctx)
	})
}

// RestoreBackup implements hutch.Backups.
func (s *BackupService) RestoreBackup(ctx context.Context, backup string, req hutch.RestoreBackupRequest) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "RestoreBackup", Sandbox: req.SandboxID, Target: backup, Request: req}, func(ctx context.Context) error {
		return next(ctx, s).RestoreBackup(ctx, backup, req)
	})
}

// DeleteBackup implements hutch.Backups.
func (s *BackupService) DeleteBackup(ctx context.Context, backup string) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "DeleteBackup", Target: backup}, func(ctx context.Context) error {
		return next(ctx, s).DeleteBackup(ctx, backup)
	})
}
