package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"hutch"
	"hutch/client"
	"hutch/internal/stream"
)

// findProcess finds a process by its id, or by a unique name: among running processes or, if none runs, the last one.
func findProcess(ctx context.Context, svc hutch.Service, sandbox, name string) (hutch.Process, error) {
	list, err := svc.Processes(ctx, sandbox)
	if err != nil {
		return hutch.Process{}, err
	}
	var found []hutch.Process
	for _, p := range list {
		if p.ID == name {
			return p, nil
		}
		if p.Name == name {
			found = append(found, p)
		}
	}
	running := slices.DeleteFunc(slices.Clone(found), func(p hutch.Process) bool { return !p.Status.Live() })
	switch {
	case len(running) == 1:
		return running[0], nil
	case len(running) == 0 && len(found) > 0: // the oldest first
		return found[len(found)-1], nil
	case len(found) == 0:
		return hutch.Process{}, hutch.Errorf(hutch.NotFound, "there is no process %q in the sandbox %q: see `hutch ps %s`%s", name, sandbox, sandbox, similarName(name, processNames(list)))
	}
	return hutch.Process{}, hutch.Errorf(hutch.Invalid, "%d running processes are called %q: name one by its id; see `hutch ps %s`", len(running), name, sandbox)
}

func newPs(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ps [SANDBOX]", Short: "List the background processes of a sandbox, or of all",
		Long: "List the background processes of a sandbox of the server, or of all sandboxes, with those\nthat have ended.\n" + remoteHelp,
		Args: cobra.MaximumNArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			if len(args) == 0 {
				return psAll(ctx, svc, asJSON, std)
			}
			list, err := svc.Processes(ctx, args[0])
			if err != nil {
				return err
			}
			return writeList(std.out, asJSON, list, processHead, processRow)
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

const processHead = "PROCESS\tNAME\tSTATUS\tPID\tRUNS FOR\tRESTARTS\tCOMMAND"

func processRow(p hutch.Process) []any {
	return []any{p.ID, dash(p.Name), state(p), pid(p), age(p), p.Restarts, oneLine(clip(p.Command, 60))}
}

// psAll lists the processes of all sandboxes, and skips sandboxes that are destroyed meanwhile.
func psAll(ctx context.Context, svc hutch.Service, asJSON bool, std streams) error {
	sandboxes, err := svc.Sandboxes(ctx, hutch.Filter{})
	if err != nil {
		return err
	}
	var all []hutch.Process
	for _, s := range sandboxes {
		list, err := svc.Processes(ctx, s.ID)
		if err != nil && !errors.Is(err, hutch.NotFound) {
			return err
		}
		all = append(all, list...)
	}
	return writeList(std.out, asJSON, all, "SANDBOX\t"+processHead, func(p hutch.Process) []any { return append([]any{p.SandboxID}, processRow(p)...) })
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// size returns a number of bytes for people.
func size(n int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1024, 0
	for ; v >= 1000 && i < len(units)-1; i++ {
		v /= 1024
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

func state(p hutch.Process) string {
	if p.Health != nil && p.Status.Live() {
		return fmt.Sprintf("%s (%s)", p.Status, p.Health.Status)
	}
	if p.ExitCode != nil && *p.ExitCode != 0 {
		return fmt.Sprintf("%s (%d)", p.Status, *p.ExitCode)
	}
	return string(p.Status)
}

func pid(p hutch.Process) string {
	if p.PID == 0 {
		return "-"
	}
	return fmt.Sprint(p.PID)
}

func age(p hutch.Process) time.Duration {
	end := time.Now()
	if p.EndTime != nil {
		end = *p.EndTime
	}
	return max(end.Sub(p.StartTime), 0).Round(time.Second)
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

func newStart(h *home, std streams) *cobra.Command {
	var req hutch.ProcessRequest
	var env []string
	var restart string
	var asJSON bool
	var p placement
	var m maker
	var care careFlags
	c := &cobra.Command{
		Use: "start [flags] SANDBOX [COMMAND [ARG...]]", Short: "Start a background process in a sandbox",
		Long: `Start a background process in the sandbox of that id, which is made if there is
none, and print the process's id. It outlives this command. With --entrypoint it is
the program of the sandbox's image.
` + remoteHelp,
		Example: `  hutch start --name web --restart on-failure demo 'python3 -m http.server 8000'
  hutch start --image nginx:1 --entrypoint site
  hutch logs -f demo web`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if err := refuseSwallowed(c, args[1:]); err != nil {
				return err
			}
			if req.Env, err = environment(env); err != nil {
				return err
			}
			if req.Command, err = commandToStart(args[1:], req.Entrypoint); err != nil {
				return err
			}
			if req.Care, err = care.care(); err != nil {
				return err
			}
			req.RestartPolicy = hutch.RestartPolicy(restart)
			if err := req.Check(); err != nil { // before a sandbox is created for the process
				return err
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			if err := m.ensure(c.Context(), svc, p.request(args[0]), std); err != nil {
				return err
			}
			started, err := svc.StartProcess(c.Context(), args[0], req)
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(std.out, started)
			}
			fmt.Fprintln(std.out, started.ID)
			return nil
		},
	}
	f := c.Flags()
	f.SetInterspersed(false)
	f.StringVar(&req.Name, "name", "", "what to call it")
	f.BoolVar(&req.Entrypoint, "entrypoint", false, "run the image's own program: its ENTRYPOINT and CMD")
	care.flags(f)
	f.StringVar(&restart, "restart", "never", "when to start it again after it ended: never, on-failure or always")
	f.StringVarP(&req.Dir, "cwd", "w", "", "working directory inside (default /workspace)")
	userVar(f, &req.User, "who the process runs as")
	f.StringArrayVarP(&env, "env", "e", nil, "environment variable, NAME=VALUE, or NAME with the value that it has here; may be repeated")
	f.StringArrayVar(&req.Secrets, "secret", nil, "secret to set as environment variable, NAME or VARIABLE=NAME; may be repeated")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	p.flags(c)
	m.flags(c)
	return c
}

// commandToStart returns the command that start was given; "" for the program of the image.
func commandToStart(args []string, entrypoint bool) (string, error) {
	switch {
	case entrypoint && len(args) > 0:
		return "", usageError{fmt.Errorf("--entrypoint runs the program of the image: leave out the command %.60q", args[0])}
	case entrypoint:
		return "", nil
	case len(args) == 0:
		return "", usageError{errors.New("nothing to start: give a command, or --entrypoint for the program of the image")}
	}
	return commandLine(args)
}

func newLogs(h *home, std streams) *cobra.Command {
	var follow, asJSON, times, cast bool
	var cursor int64
	var since string
	tail := -1
	c := &cobra.Command{
		Use: "logs [-f] [-t] [-n LINES] [--since TIME] SANDBOX PROCESS", Short: "Print what a background process has printed",
		Long: `Print what a background process, by its id or name, has printed, as far as
it is kept: the newest MiB and more. Its stderr goes to ours.

With --asciicast it is a recording of a terminal, which players of asciicast
version 2 show as it went.
` + remoteHelp,
		Example: `  hutch logs -f demo web
  hutch logs -t --since 10m demo web
  hutch logs --asciicast demo terminal > terminal.cast`,
		Args: cobra.ExactArgs(2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			from, err := instant(since, time.Now())
			if err != nil {
				return err
			}
			p, err := findProcess(ctx, svc, args[0], args[1])
			if err != nil {
				return err
			}
			req := hutch.LogsRequest{SandboxID: args[0], ProcessID: p.ID, Cursor: cursor, Follow: follow, Since: from, Times: times || cast}
			if cast {
				return printRecording(ctx, svc, p, req, std.out)
			}
			print := client.To(std.out, std.err)
			if times {
				print = stampLines(print)
			}
			if asJSON {
				print = func(o hutch.Output) error { return json.NewEncoder(std.out).Encode(stream.NewPiece(o)) }
			}
			if tail >= 0 {
				req.Cursor, err = printTail(ctx, svc, req, tail, print)
				req.Since = time.Time{} // not needed any more: the cursor is after that time
			}
			if err == nil && (tail < 0 || follow) {
				_, err = svc.Logs(ctx, req, print)
			}
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err
		}),
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "keep printing until the process has ended")
	c.Flags().IntVarP(&tail, "tail", "n", -1, "begin with this many lines before the end (default: all that is kept)")
	c.Flags().StringVar(&since, "since", "", "begin with the output of this time, or of this long ago, such as 10m")
	c.Flags().BoolVarP(&times, "timestamps", "t", false, "print before each line when its first byte was read")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object in each line, with the cursor after it")
	c.Flags().Int64Var(&cursor, "cursor", 0, "begin after this many bytes of the output")
	c.Flags().BoolVar(&cast, "asciicast", false, "print a terminal's output as a recording, asciicast version 2")
	c.MarkFlagsMutuallyExclusive("asciicast", "json")
	c.MarkFlagsMutuallyExclusive("asciicast", "timestamps")
	c.MarkFlagsMutuallyExclusive("asciicast", "tail")
	return c
}

// printRecording prints a terminal's output as asciicast.
func printRecording(ctx context.Context, svc hutch.Service, p hutch.Process, req hutch.LogsRequest, out io.Writer) error {
	cast, err := stream.NewAsciicast(out, p)
	if err != nil {
		return err
	}
	if _, err = svc.Logs(ctx, req, cast.Output); err == nil {
		err = cast.Close()
	}
	return cmp.Or(context.Cause(ctx), err)
}

func newKill(h *home, std streams) *cobra.Command {
	var name string
	var asJSON bool
	c := &cobra.Command{
		Use: "kill [-SIGNAL] SANDBOX PROCESS...", Short: "Send a signal to background processes and all they started",
		Long:    "Send a signal to background processes, by their ids or names, and all they started:\ntheir stop signal, which is TERM if they have none, or another one, such as -9, -INT\nor -s HUP.\n" + remoteHelp,
		Example: "  hutch kill demo web\n  hutch kill -9 demo web",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			asked := 0
			if name != "" {
				n, err := signalNumber(name)
				if err != nil {
					return err
				}
				asked = n
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			var errs []error
			var signalled []hutch.Process
			for _, arg := range args[1:] {
				p, err := findProcess(c.Context(), svc, args[0], arg)
				if err == nil {
					err = svc.Signal(c.Context(), args[0], p.ID, cmp.Or(asked, p.StopSignal, int(unix.SIGTERM)))
				}
				if err != nil {
					errs = append(errs, err)
					continue
				}
				signalled = append(signalled, p)
			}
			err = writeList(std.out, asJSON, signalled, "", func(p hutch.Process) []any { return []any{p.ID} })
			return errors.Join(append(errs, err)...)
		},
	}
	c.Flags().StringVarP(&name, "signal", "s", "", "name or number of the signal, such as KILL or 9 (default: the process's stop signal, or TERM)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, the processes as they were before")
	return c
}

// signalNumber returns the signal of a name or number.
func signalNumber(name string) (int, error) {
	var n int
	if _, err := fmt.Sscanf(name+"\n", "%d\n", &n); err == nil {
		return n, nil
	}
	if n := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG")); n != 0 {
		return int(n), nil
	}
	return 0, usageError{fmt.Errorf("there is no signal %q: give a name such as TERM, or a number", name)}
}

func newLanguages(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "languages SANDBOX", Short: "List the languages that a sandbox has, with versions",
		Long: "List the languages that a sandbox of the server has the programs for, with versions.\n" + remoteHelp,
		Args: cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			list, err := svc.Languages(ctx, args[0])
			if err != nil {
				return err
			}
			return writeList(std.out, asJSON, list, "LANGUAGE\tVERSION\tCONTEXTS\tALSO CALLED", func(l hutch.Language) []any {
				contexts := ""
				if l.Contexts {
					contexts = "yes"
				}
				return []any{l.Name, dash(l.Version), dash(contexts), strings.Join(l.Aliases, ", ")}
			})
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
