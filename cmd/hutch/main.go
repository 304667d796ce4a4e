// Command hutch is all of Hutch in one program: `hutch serve` is the daemon, `hutch run` and `hutch mcp` bring their
// own engine, and the other commands talk to a daemon through package client.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"hutch"
	"hutch/internal/text"
)

func main() {
	if os.Getenv("GOGC") == "" {
		// A call over MCP allocates half a megabyte of garbage, most of it buffers of JSON decoders: with a heap of a
		// few megabytes, the collector would otherwise run at every tenth call.
		debug.SetGCPercent(400)
	}
	signal.Ignore(syscall.SIGPIPE) // if the reader is gone, Write fails, and we clean up
	ctx, cancel := context.WithCancelCause(context.Background())
	keys := &interrupts{}
	go keys.watch(cancel)
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == "hutch-conversation" {
		// Under this name, hutch replaces a server that is started without arguments.
		args = append([]string{"conversation"}, args...)
	}
	os.Exit(run(ctx, args, streams{os.Stdin, os.Stdout, os.Stderr, keys}))
}

// streams are the input and output of a command.
type streams struct {
	in         *os.File
	out, err   io.Writer
	interrupts *interrupts
}

// run runs one command line and returns the exit code.
func run(ctx context.Context, args []string, std streams) int {
	root := newRoot(std)
	root.SetArgs(rewrite(args))
	return exitStatus(std.err, root.ExecuteContext(ctx))
}

// exitCode is a program's own exit code, which is passed on without a message.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// interrupted is the cause of a context that a signal cancelled.
type interrupted syscall.Signal

func (s interrupted) Error() string { return "interrupted: " + syscall.Signal(s).String() }

const (
	failed = 125 // Hutch itself failed; the user's program did not run to its end
	usage  = 2
)

// exitStatus turns an error into a message and an exit code.
func exitStatus(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitCode](err); ok {
		return int(code)
	}
	if sig, ok := errors.AsType[interrupted](err); ok {
		return 128 + int(sig)
	}
	if errors.Is(err, syscall.EPIPE) {
		return 128 + int(syscall.SIGPIPE)
	}
	if e, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintf(w, "hutch: %s\n", text.Inert(e.Error()))
		return usage
	}
	fmt.Fprintf(w, "hutch: %s\n", text.Inert(err.Error()))
	if e, ok := errors.AsType[*hutch.Error](err); ok && e.Kind == hutch.Internal && e.Cause != nil {
		fmt.Fprintf(w, "cause: %s\n", text.Inert(e.Cause.Error()))
	}
	return failed
}

// usageError is a malformed command line.
type usageError struct{ error }
