package wrap

import (
	"context"
	"runtime/debug"

	"hutch/internal/verb"
)

// Recovering returns a hook that turns a panic in a call into an error of that call. told reports the panic and returns
// that error. The hook is for surfaces without an HTTP server, where a panic would otherwise end the process with the
// calls of all callers.
func Recovering(told func(ctx context.Context, verb string, cause any, stack []byte) error) Hook {
	return func(ctx context.Context, c verb.Call, _ any, run func(context.Context) error) (err error) {
		defer func() {
			if cause := recover(); cause != nil {
				err = told(ctx, c.Verb, cause, debug.Stack())
			}
		}()
		return run(ctx)
	}
}
