package wrap

import (
	"context"
	"runtime/debug"

	"hutch/internal/verb"
)

// Recovering is a hook that makes a panic the error of its call, which is what told returns. It is for surfaces that stand
// on no server of HTTP: there a panic would end the process, and everybody's calls with it.
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
