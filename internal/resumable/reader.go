package resumable

import (
	"context"
	"errors"

	"hutch"
)

// Reader is where one connection reads the output of a command.
type Reader struct {
	command *Command
	reader  reader
}

// Read passes output to out and returns how the command ended. When ctx ends, the command continues, unless the cause
// is an error that ends it too.
func (r *Reader) Read(ctx context.Context, out func(hutch.Output) error) (hutch.ExecResult, error) {
	x := r.command
	defer r.leave()
	err := x.log.follow(ctx, &r.reader, out)
	if cause := context.Cause(ctx); cause != nil && cancels(cause) {
		x.cancel(cause)
		<-x.over
		return x.result, cause
	}
	if err != nil {
		return hutch.ExecResult{}, err
	}
	return x.result, x.err
}

// cancels reports whether a call that ended with this cause also ends its command: because the caller cancelled it, or
// lost the right to run it.
func cancels(cause error) bool {
	e, ok := errors.AsType[*hutch.Error](cause)
	return ok && (e.Kind == hutch.Conflict || e.Kind == hutch.Denied)
}

// leave ends the reading. Unless another reader has replaced r, the grace begins.
func (r *Reader) leave() {
	if r.command.log.detach(&r.reader) {
		r.command.await()
	}
}
