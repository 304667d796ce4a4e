// Package wrap passes each verb on, with a hook around every call.
//
// It is the one pass-through of [hutch.Service]: policy and the redactor are a
// hook and the few verbs that they treat in a special way. The wrapped service
// is a field and is never embedded, so a verb that is new in the interface does
// not compile here until it has a method, and then it runs through the hook.
package wrap

import (
	"context"
	"net/url"
	"strings"

	"hutch"
	"hutch/internal/verb"
)

// Hook runs around a call. It calls run at most once and returns the error of
// the call. After run, result points to what the call returned; the hook may
// change it. Result is nil for verbs that return only an error.
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

// networkTarget describes a network for the record; nil is the empty text.
func networkTarget(n *hutch.Network) string {
	if n == nil {
		return ""
	}
	return strings.TrimSpace(string(n.Mode) + " " + n.Allow.String())
}

// urlTarget is a URL without the credentials that can be in it.
func urlTarget(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
