package wrap

import (
	"context"
	"runtime/debug"

	"hutch/internal/verb"
)

// Recovering returns a hook that turns a panic into the error of its call, which told returns. It is for surfaces
// without an HTTP server: there a panic would end the process, and with it the calls of all callers.
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
