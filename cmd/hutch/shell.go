package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/delay"
)

func newShell(h *home, std streams) *cobra.Command {
	var p placement
	var attach string
	var verbose bool
	var user string
	var m maker
	c := &cobra.Command{
		Use:   "shell [flags] [SANDBOX [COMMAND [ARG...]]]",
		Short: "Open a terminal in a sandbox",
		Long: `Open a terminal with a shell, or another command, in the sandbox of that id, which
is made if there is none. Without an id it is a sandbox of its own, without a
server, that goes with the shell.

Keys go to the program, Ctrl-C too. Enter ~ . leaves it running (~~ sends a ~);
--attach goes back to it, from anywhere, and shows what was printed. The exit
code is the program's.
` + remoteHelp,
		Example: `  hutch shell demo
  hutch shell demo vim notes.txt
  hutch shell --attach p-x3k9 demo`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				if err := refuseSwallowed(c, args[1:]); err != nil {
					return err
				}
			}
			t, err := openTerminal(std)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return h.ownShell(c.Context(), t, p, user, newLog(std, verbose))
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			t.svc, t.sandbox = svc, args[0]
			if attach != "" {
				t.process, err = findProcess(c.Context(), svc, args[0], attach)
			} else if err = m.ensure(c.Context(), svc, p.request(args[0]), std); err == nil {
				err = t.start(c.Context(), user, args[1:])
			}
			if err != nil {
				return err
			}
			return t.show(c.Context())
		},
	}
	p.flags(c)
	c.Flags().SetInterspersed(false)
	userVar(c.Flags(), &user, "who the shell runs as")
	c.Flags().StringVar(&attach, "attach", "", "go back to this terminal, by its process id or name")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "log what is done, without a server")
	m.flags(c)
	return c
}

// inTerminal runs a command of exec with a terminal.
func (j *job) inTerminal(ctx context.Context, svc hutch.Service, m maker, sandbox hutch.CreateRequest, req hutch.ExecRequest, std streams) error {
	if j.language != "" || j.timeout > 0 || j.asJSON || len(req.Args) > 0 || req.SessionID != "" {
		return usageError{errors.New("a command in a terminal takes no --language, --timeout, --session or --json: leave them out, or leave out --tty")}
	}
	t, err := openTerminal(std)
	if err != nil {
		return err
	}
	if err := m.ensure(ctx, svc, sandbox, std); err != nil {
		return err
	}
	t.svc, t.sandbox = svc, sandbox.ID
	if err := t.run(ctx, hutch.ProcessRequest{Command: req.Command, Dir: req.Dir, User: req.User, Env: req.Env, Secrets: req.Secrets}); err != nil {
		return err
	}
	return t.show(ctx)
}

// ownShell opens a shell in a new sandbox.
func (h *home) ownShell(ctx context.Context, t *terminal, p placement, user string, log *slog.Logger) (err error) {
	b, err := p.begin(ctx, h, t.streams, log)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := b.end(); err == nil {
			err = cerr
		}
	}()
	t.svc, t.sandbox = b, b.sandbox
	if err := t.start(ctx, user, nil); err != nil {
		return err
	}
	return t.show(ctx)
}

// terminal connects the person's terminal with one in the sandbox.
type terminal struct {
	streams
	svc     hutch.Service
	sandbox string
	process hutch.Process
}

// openTerminal refuses a stream that is not a terminal.
func openTerminal(std streams) (*terminal, error) {
	if !isTerminal(std.in) {
		return nil, usageError{errors.New("the standard input is not a terminal: use `hutch exec` to run a command without one")}
	}
	return &terminal{streams: std}, nil
}

// size returns the size of the person's terminal.
func (t *terminal) size() *hutch.Size {
	s := hutch.Size{Columns: 80, Rows: 24}
	if w, err := unix.IoctlGetWinsize(int(t.in.Fd()), unix.TIOCGWINSZ); err == nil && w.Col > 0 && w.Row > 0 {
		s = hutch.Size{Columns: min(int(w.Col), hutch.MaxColumns), Rows: min(int(w.Row), hutch.MaxRows)}
	}
	return &s
}

// start starts the program.
func (t *terminal) start(ctx context.Context, user string, args []string) (err error) {
	req := hutch.ProcessRequest{Command: hutch.ImageShell, User: user}
	if len(args) > 0 {
		if req.Command, err = commandLine(args); err != nil {
			return err
		}
	}
	return t.run(ctx, req)
}

// run starts a program in the terminal.
func (t *terminal) run(ctx context.Context, req hutch.ProcessRequest) (err error) {
	req.Name, req.Terminal = "shell", t.size()
	req.Env = maps.Clone(req.Env)
	if req.Env == nil {
		req.Env = map[string]string{}
	}
	if req.Env["PS1"] == "" {
		req.Env["PS1"] = t.sandbox + `:\w\$ `
	}
	if kind := os.Getenv("TERM"); kind != "" && req.Env["TERM"] == "" {
		req.Env["TERM"] = kind
	}
	t.process, err = t.svc.StartProcess(ctx, t.sandbox, req)
	return err
}

var errDetached = errors.New("detached")

// show shows the program until it ends or is left.
func (t *terminal) show(ctx context.Context) error {
	restore, err := raw(int(t.in.Fd()))
	if err != nil {
		return err
	}
	defer restore()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	keys, typed := io.Pipe()
	defer keys.Close()
	go t.read(typed, cancel) // ends with the program, because nothing interrupts a Read
	go t.svc.Input(ctx, t.sandbox, t.process.ID, keys, false)
	go t.follow(ctx)
	err = t.print(ctx)
	restore()
	var sig interrupted
	switch cause := context.Cause(ctx); {
	case cause == errDetached:
		fmt.Fprintf(t.err, "\nleft running: hutch shell --attach %s %s\n", t.process.ID, t.sandbox)
		return nil
	case errors.As(cause, &sig): // our own terminal is gone, or a signal ends us
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return errors.Join(cause, t.svc.Signal(ctx, t.sandbox, t.process.ID, int(syscall.SIGHUP)))
	case err != nil:
		return err
	}
	return t.exit(ctx)
}

// exit passes the program's exit code on.
func (t *terminal) exit(ctx context.Context) error {
	p, err := t.svc.Process(ctx, t.sandbox, t.process.ID)
	if err != nil || p.ExitCode == nil || *p.ExitCode == 0 {
		return err
	}
	return exitCode(*p.ExitCode)
}

// print prints the program's output. If the connection breaks, it continues where it stopped.
func (t *terminal) print(ctx context.Context) error {
	cursor, pause := int64(0), 100*time.Millisecond
	for {
		next, err := t.svc.Logs(ctx, hutch.LogsRequest{SandboxID: t.sandbox, ProcessID: t.process.ID, Cursor: cursor, Follow: true}, func(o hutch.Output) error {
			pause = 100 * time.Millisecond
			_, err := t.out.Write(o.Data)
			return err
		})
		cursor = next
		if !errors.Is(err, hutch.Unavailable) || pause > 5*time.Second {
			return err
		}
		if delay.Wait(ctx, pause) != nil {
			return err
		}
		pause *= 2
	}
}

// follow passes changes of our terminal's size on.
func (t *terminal) follow(ctx context.Context) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	defer signal.Stop(changed)
	for size := t.process.Terminal; ; {
		if now := t.size(); size == nil || *now != *size {
			size = now
			t.svc.Resize(ctx, t.sandbox, t.process.ID, *size)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// read reads keys until the escape sequence, or the end of input, leaves the program.
func (t *terminal) read(typed *io.PipeWriter, leave context.CancelCauseFunc) {
	var e escape
	buf := make([]byte, 4<<10)
	for {
		n, err := t.in.Read(buf)
		keys, left := e.filter(buf[:n])
		if len(keys) > 0 {
			typed.Write(keys)
		}
		if left || err != nil {
			leave(errDetached)
			return
		}
	}
}

// escape finds ~ . at the beginning of a line.
type escape struct {
	within bool // inside a line
	tilde  bool // a tilde is held back
}

// filter returns the input for the program, and whether to leave it.
func (e *escape) filter(in []byte) (out []byte, left bool) {
	for _, b := range in {
		switch {
		case e.tilde && b == '.':
			return out, true
		case e.tilde && b != '~':
			out = append(out, '~')
		case !e.tilde && !e.within && b == '~':
			e.tilde = true
			continue
		}
		out = append(out, b)
		e.tilde, e.within = false, b != '\r' && b != '\n'
	}
	return out, false
}

// raw passes every key to us unchanged. restore can be called twice.
func raw(fd int) (restore func(), err error) {
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	t := *old
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &t); err != nil {
		return nil, err
	}
	return func() { unix.IoctlSetTermios(fd, unix.TCSETS, old) }, nil
}
