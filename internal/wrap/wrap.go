// Package wrap passes each verb on, with a hook around every call.
//
// It is the only pass-through of [hutch.Service]: policy and the redactor each consist of a hook, and of methods for
// the few verbs that need more. The wrapped service is a field and is never embedded. So when the interface gets a new
// verb, this package does not compile until the verb has a method here, which goes through the hook. A hook can
// redirect its call to another service with [To].
package wrap

import (
	"context"
	"net/url"
	"strings"

	"hutch"
	"hutch/internal/verb"
)

// Hook runs around a call. It calls run at most once and returns the error of the call. After run, result points to the
// value that the call returned, which the hook may change. result is nil for verbs that return only an error.
type Hook func(ctx context.Context, c verb.Call, result any, run func(context.Context) error) error

// Service is a hutch.Service that calls Next with Hook around each call.
type Service struct {
	Next hutch.Service
	Hook Hook
}

var _ hutch.Service = (*Service)(nil)

// Around makes a call that returns a value.
func Around[T any](ctx context.Context, h Hook, c verb.Call, run func(context.Context) (T, error)) (result T, err error) {
	err = h(ctx, c, &result, func(ctx context.Context) (err error) {
		result, err = run(ctx)
		return err
	})
	return result, err
}

// AroundError makes a call that returns only an error.
func AroundError(ctx context.Context, h Hook, c verb.Call, run func(context.Context) error) error {
	return h(ctx, c, nil, run)
}

// networkTarget describes a network for the audit log; "" for nil.
func networkTarget(n *hutch.Network) string {
	if n == nil {
		return ""
	}
	target := strings.TrimSpace(string(n.Mode) + " " + n.Allow.String())
	if len(n.Block) > 0 {
		target += " without " + n.Block.String()
	}
	return target
}

// urlTarget returns a URL without its credentials.
func urlTarget(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// To returns a context for the run function of a hook. With it, the call of s goes to other instead of Next. Wrappers
// at other levels still use their Next.
func To[T any](ctx context.Context, s Wrapper[T], other T) context.Context {
	return context.WithValue(ctx, elsewhere{s}, other)
}

// Wrapper is implemented by the types of this package that wrap services of type T.
type Wrapper[T any] interface{ wraps() T }

type elsewhere struct{ of any }

// next returns the service that receives a call of s.
func next[T any](ctx context.Context, s Wrapper[T]) T {
	if other, ok := ctx.Value(elsewhere{s}).(T); ok {
		return other
	}
	return s.wraps()
}

func (s *Service) wraps() hutch.Service       { return s.Next }
func (s *TokenService) wraps() hutch.Tokens   { return s.Next }
func (s *SecretService) wraps() hutch.Secrets { return s.Next }
func (s *BackupService) wraps() hutch.Backups { return s.Next }
func (s *ImageService) wraps() hutch.Images   { return s.Next }
func (s *VolumeService) wraps() hutch.Volumes { return s.Next }
func (s *SSHService) wraps() hutch.SSH        { return s.Next }
func (s *NodeService) wraps() hutch.Nodes     { return s.Next }
