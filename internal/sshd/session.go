package sshd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync"

	"golang.org/x/crypto/ssh"

	"hutch"
	"hutch/internal/membudget"
	"hutch/internal/sshd/sftpfs"
)

const (
	maxVariables = 32
	maxVariable  = 1 << 10 // bytes of a value
	// failed is the exit status of a command that could not be run, as with OpenSSH's client.
	failed = 255
)

// variables are the variables that a client can set.
var variables = regexp.MustCompile(`^(LANG|LC_[A-Z]{1,20})$`)

// session is one command, shell or subsystem of a client.
type session struct {
	*connection
	ch     ssh.Channel
	env    map[string]string
	screen *screen // nil without a terminal
	cancel context.CancelCauseFunc

	began bool
	tasks sync.WaitGroup
}

// session serves a channel until the client closes it.
func (c *connection) session(ctx context.Context, offer ssh.NewChannel) {
	ch, requests, err := offer.Accept()
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &session{connection: c, ch: ch, env: map[string]string{}, cancel: cancel}
	for r := range requests {
		ok := s.request(ctx, r)
		if r.WantReply {
			r.Reply(ok, nil)
		}
		if ok && s.began {
			s.start(ctx, r)
		}
	}
	cancel(errGone)
	ch.Close()
	s.tasks.Wait()
}

var errGone = errors.New("the client has gone")

// request handles a request on the channel, and reports whether it is granted. Requests that begin the session are only
// recorded: the client gets its answer first.
func (s *session) request(ctx context.Context, r *ssh.Request) bool {
	switch r.Type {
	case "shell", "exec", "subsystem":
		ok := !s.began && (r.Type != "subsystem" || text(r.Payload) == "sftp")
		s.began = s.began || ok
		return ok
	case "env":
		return s.setVariable(r.Payload)
	case "pty-req":
		return s.openScreen(r.Payload)
	case "window-change":
		return s.screen != nil && s.screen.change(r.Payload)
	case "signal":
		return s.signal(ctx, text(r.Payload))
	}
	return false
}

// text reads a payload that is one string.
func text(payload []byte) string {
	var v struct{ Text string }
	if ssh.Unmarshal(payload, &v) != nil {
		return ""
	}
	return v.Text
}

func (s *session) setVariable(payload []byte) bool {
	var v struct{ Name, Value string }
	if ssh.Unmarshal(payload, &v) != nil || !variables.MatchString(v.Name) || len(v.Value) > maxVariable || len(s.env) >= maxVariables {
		return false
	}
	s.env[v.Name] = v.Value
	return true
}

// start begins the requested work of the session.
func (s *session) start(ctx context.Context, r *ssh.Request) {
	var run func(context.Context) (int, error)
	command := text(r.Payload)
	switch {
	case r.Type != "shell" && r.Type != "exec" && r.Type != "subsystem":
		return
	case s.wrong != nil:
		run = func(context.Context) (int, error) { return 0, s.wrong }
	case r.Type == "subsystem":
		run = s.files
	case s.screen != nil:
		run = func(ctx context.Context) (int, error) { return s.inTerminal(ctx, command) }
	default:
		run = func(ctx context.Context) (int, error) { return s.exec(ctx, command) }
	}
	s.tasks.Go(func() { s.finish(ctx, run) })
}

// finish calls run, and reports its result to the client.
func (s *session) finish(ctx context.Context, run func(context.Context) (int, error)) {
	defer s.ch.Close()
	code, err := run(ctx)
	var died killed
	ended := errors.As(context.Cause(ctx), &died)
	if err = callError(ctx, err); err != nil && !ended {
		fmt.Fprintf(s.ch.Stderr(), "hutch: %s%s", hutch.AsError(err).Message, s.newline())
		code = failed
	}
	s.ch.CloseWrite()
	if ended {
		s.ch.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Name     string
			Dumped   bool
			Message  string
			Language string
		}{Name: string(died)}))
		return
	}
	s.ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(code)}))
}

// newline returns what ends a line, even on a raw terminal.
func (s *session) newline() string {
	if s.screen != nil {
		return "\r\n"
	}
	return "\n"
}

// killed is the name of a signal by which the client ended a command.
type killed string

func (k killed) Error() string { return "killed by the client with " + string(k) }

// signals are the numbers of SSH's signal names.
var signals = map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "ABRT": 6, "FPE": 8, "KILL": 9, "USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15}

// signal passes a signal to the program in the terminal. Without a terminal, the signals that ask for the end of a
// command kill it, with everything that it started.
func (s *session) signal(ctx context.Context, name string) bool {
	number := signals[name]
	switch {
	case number == 0 || !s.began:
		return false
	case s.screen != nil:
		return s.screen.signal(ctx, number)
	}
	switch name {
	case "HUP", "INT", "QUIT", "KILL", "TERM":
		s.cancel(killed(name))
		return true
	}
	return false
}

// exec runs a command without a terminal; an empty one is a shell that reads commands.
func (s *session) exec(ctx context.Context, command string) (int, error) {
	if command == "" {
		command = hutch.ImageLoginShell
	}
	res, err := s.server.opt.Service.Exec(ctx, s.sandbox, hutch.ExecRequest{
		Command: command, Env: s.env, User: s.user, Stdin: s.ch, StreamOnly: true, Timeout: hutch.InSeconds(s.server.opt.MaxTimeout),
	}, func(o hutch.Output) error {
		var to io.Writer = s.ch
		if o.Stream == hutch.Stderr {
			to = s.ch.Stderr()
		}
		_, err := to.Write(o.Data)
		return err
	})
	switch {
	case err != nil:
		return 0, err
	case res.TimedOut:
		fmt.Fprintf(s.ch.Stderr(), "hutch: the command was ended after %v, which is the longest\n", s.server.opt.MaxTimeout)
	case res.Limit != "":
		fmt.Fprintf(s.ch.Stderr(), "hutch: the sandbox reached its limit of %s\n", res.Limit)
	}
	return res.ExitCode, nil
}

// files serves SFTP.
func (s *session) files(ctx context.Context) (int, error) {
	return 0, sftpfs.Serve(ctx, s.ch, sftpfs.Options{
		Service: s.server.opt.Service, Sandbox: s.sandbox, User: s.user, Held: s.held, MaxTimeout: s.server.opt.MaxTimeout,
		Open: func() (*membudget.Account, func()) { return s.server.opt.Budget.Open(s.owner) },
	})
}
