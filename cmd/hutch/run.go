package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"hutch"
	"hutch/client"
	"hutch/internal/image"
	"hutch/internal/text"
)

// job is a command line or a source text to run, as the flags describe it.
type job struct {
	language string
	code     string
	dir      string
	user     string
	env      []string
	secrets  []string
	timeout  time.Duration
	noStdin  bool
	asJSON   bool

	unlimited bool // a person at a terminal gave no time limit
	ofImage   bool // the command is the image's own, which is known after the pull

	ownSandbox bool // the sandbox ends with the program, so its network cannot be changed later
}

// longTime is the time limit of a person's command: the most that a server
// allows by default.
const longTime = 24 * time.Hour

func (j *job) flags(c *cobra.Command) {
	f := c.Flags()
	f.SetInterspersed(false) // flags after the command belong to the command
	f.StringVarP(&j.language, "language", "l", "", "run source text in this language: python, javascript, typescript, bash, go ...")
	f.StringVarP(&j.code, "code", "c", "", "the source text itself, instead of a file")
	f.StringVarP(&j.dir, "cwd", "w", "", "working directory inside (default /workspace)")
	userVar(f, &j.user, "who the command runs as")
	f.StringArrayVarP(&j.env, "env", "e", nil, "environment variable, NAME=VALUE, or NAME with the value that it has here; may be repeated")
	f.StringArrayVar(&j.secrets, "secret", nil, "secret to set as environment variable, NAME or VARIABLE=NAME; may be repeated")
	positiveDurationVar(f, &j.timeout, "timeout", "t", 0, "kill everything that it started after this time, e.g. 90s")
	f.BoolVarP(&j.noStdin, "no-stdin", "n", false, "give the program an empty standard input")
	f.BoolVar(&j.asJSON, "json", false, "print the result as JSON at the end, instead of output as it comes")
}

// userVar defines the flag of a user.
func userVar(f *pflag.FlagSet, user *string, usage string) {
	f.StringVarP(user, "user", "u", "", usage+", `NAME` or UID, or one of them with :GROUP (default: the user of the image)")
}

// request turns flags and arguments into a request to the engine.
func (j *job) request(c *cobra.Command, args []string, stdin *os.File) (hutch.ExecRequest, error) {
	if err := refuseSwallowed(c, args); err != nil {
		return hutch.ExecRequest{}, err
	}
	env, err := environment(j.env)
	if err != nil {
		return hutch.ExecRequest{}, err
	}
	req := hutch.ExecRequest{Language: j.language, Dir: j.dir, User: j.user, Env: env, Secrets: j.secrets, Timeout: hutch.InSeconds(j.timeout)}
	if j.language != "" && j.code != "" {
		req.Args, args = args, nil
	} else if j.language != "" && len(args) > 1 {
		req.Args, args = args[1:], args[:1]
	}
	source, err := j.source(&req, args, stdin)
	if err != nil {
		return hutch.ExecRequest{}, err
	}
	if !source && !j.noStdin && !isTerminal(stdin) {
		req.Stdin = stdin
	}
	return req, nil
}

// source finds the command. used reports that the command came from the standard input: then the command itself cannot
// read the standard input.
func (j *job) source(req *hutch.ExecRequest, args []string, stdin *os.File) (used bool, err error) {
	switch {
	case j.ofImage:
		return false, nil
	case j.code != "":
		if len(args) > 0 {
			return false, usageError{fmt.Errorf("with --code there is no other argument but a program's, with --language; got %q: leave one of them out", strings.Join(args, " "))}
		}
		req.Command = j.code
		return false, nil
	case len(args) > 0 && j.language == "":
		req.Command, err = commandLine(args)
		return false, err
	case len(args) == 1 && args[0] != "-":
		if strings.HasPrefix(args[0], "-") {
			return false, misplacedFlag(args[0], "file")
		}
		req.Command, err = readSource(args[0])
		return false, err
	}
	if len(args) == 0 && isTerminal(stdin) {
		return false, usageError{errors.New("nothing to run: give a command, a file with --language, source with --code, or source on the standard input")}
	}
	req.Command, err = readAll(stdin, "the standard input")
	return true, err
}

// commandLine returns one argument as a line for bash, or several as a program with arguments. It removes a leading
// "--". Any other leading option is an error, because it was meant for hutch.
func commandLine(args []string) (string, error) {
	if args[0] == "--" && len(args) > 1 {
		args = args[1:]
	} else if strings.HasPrefix(args[0], "-") {
		return "", misplacedFlag(args[0], "command")
	}
	if len(args) == 1 {
		return args[0], nil
	}
	return hutch.CommandLine(args...), nil
}

func misplacedFlag(flag, where string) error {
	return usageError{fmt.Errorf("%s stands where the %s should: flags go before the sandbox and the %[2]s", flag, where)}
}

// refuseSwallowed refuses flags of hutch after a quoted command line. They would become arguments of the command line:
// `start demo 'sleep 1' --name x`. After a program (`exec demo ls --json`) they belong to the program.
func refuseSwallowed(c *cobra.Command, args []string) error {
	if len(args) < 2 || c.ArgsLenAtDash() >= 0 || !strings.ContainsAny(args[0], " \t\n;|&") {
		return nil
	}
	for _, a := range args[1:] {
		if isFlagOf(c, a) {
			return usageError{fmt.Errorf("%s stands after the command %.40q, which would get it as an argument: flags go first, as in `%s`; if it is meant for the command, put -- before the command", a, args[0], c.UseLine())}
		}
	}
	return nil
}

func isFlagOf(c *cobra.Command, arg string) bool {
	if name, long := strings.CutPrefix(arg, "--"); long {
		name, _, _ = strings.Cut(name, "=")
		return c.Flags().Lookup(name) != nil
	}
	return len(arg) > 1 && arg[0] == '-' && c.Flags().ShorthandLookup(arg[1:2]) != nil
}

func readSource(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", hutch.Errorf(hutch.Invalid, "%v: give the path of a source file, or the source itself with --code", err)
	}
	defer f.Close()
	return readAll(f, path)
}

func readAll(r io.Reader, name string) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, hutch.MaxCommand+1))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return string(b), nil // if it is one byte too long, the engine refuses it
}

func environment(list []string) (map[string]string, error) {
	env := map[string]string{}
	for _, kv := range list {
		k, v, found := strings.Cut(kv, "=")
		if !found {
			if v, found = os.LookupEnv(k); !found {
				return nil, usageError{fmt.Errorf("--env %s: there is no such variable to pass on; write %s=VALUE", k, k)}
			}
		}
		env[k] = v
	}
	return env, nil
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// execute runs a request with streamed output or, as JSON, with the output in its result. It returns the program's
// exit code as an error.
func (j *job) execute(ctx context.Context, svc hutch.Service, sandbox string, req hutch.ExecRequest, std streams) error {
	out := client.To(std.out, std.err)
	if j.asJSON {
		out = nil
	} else {
		req.StreamOnly = true
	}
	res, err := j.exec(ctx, svc, sandbox, req, out)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err == nil && j.asJSON {
		err = writeJSON(std.out, res)
	}
	if err != nil {
		return err
	}
	j.remark(std.err, res)
	if j.ownSandbox {
		sandbox = ""
	}
	warnOfDenied(std.err, sandbox, res.ExitCode, res.Denied)
	if res.ExitCode != 0 {
		return exitCode(res.ExitCode)
	}
	return nil
}

// exec asks for the longest time limit when a person at a terminal set none. If the server allows only less, the
// server's default applies.
func (j *job) exec(ctx context.Context, svc hutch.Service, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
	if !j.unlimited {
		return svc.Exec(ctx, sandbox, req, out)
	}
	long := req
	long.Timeout = hutch.InSeconds(longTime)
	res, err := svc.Exec(ctx, sandbox, long, out)
	if errors.Is(err, hutch.Invalid) && req.Stdin == nil {
		return svc.Exec(ctx, sandbox, req, out)
	}
	return res, err
}

// remark explains an exit code.
func (j *job) remark(w io.Writer, res hutch.ExecResult) {
	took := res.Duration.Round(time.Millisecond)
	switch {
	case res.TimedOut && j.timeout > 0:
		fmt.Fprintf(w, "hutch: killed at its time limit, after %v\n", took)
	case res.TimedOut:
		fmt.Fprintf(w, "hutch: killed at its time limit, the server's default, after %v: allow more with --timeout, such as --timeout 10m\n", took)
	case res.CompileError:
		fmt.Fprintln(w, "hutch: the program did not compile")
	case res.Limit != "":
		how := "failed"
		if res.ExitCode == 128+int(unix.SIGKILL) {
			how = "killed"
		}
		fmt.Fprintf(w, "hutch: %s at the sandbox's %s limit: give the sandbox more with --%[2]s when it is created\n", how, res.Limit)
	}
}

// warnOfDenied names what the network denied while a program failed: the program itself reports only that a name or an
// address cannot be reached. If the sandbox is gone already, the message names flags for the next sandbox.
func warnOfDenied(w io.Writer, sandbox string, code int, denied []string) {
	if code == 0 || len(denied) == 0 {
		return
	}
	var names, flags []string
	for _, rule := range denied {
		names = append(names, text.Line(rule))
		flags = append(flags, "--allow "+text.Word(rule))
	}
	next := "give the command " + strings.Join(flags, " ")
	if sandbox != "" {
		next = "run `hutch network " + sandbox + " " + strings.Join(flags, " ") + "`"
	}
	fmt.Fprintf(w, "hutch: warning: the network of the sandbox denied %s: to allow it, %s\n", strings.Join(names, ", "), next)
}

func newRun(h *home, std streams) *cobra.Command {
	j := job{ownSandbox: true}
	var p placement
	var verbose bool
	c := &cobra.Command{
		Use:   "run [flags] [COMMAND [ARG...] | FILE [ARG...]]",
		Short: "Run a command or a source file in a sandbox of its own, without a server",
		Long: `Run a command or a source file in a new sandbox that goes when it ends.

Input and output are passed through, and so is the exit code. Hutch's own
failures are exit code 125. Without an argument the source is read from the
standard input. There is no time limit but --timeout.

With --image and no argument, the program is the image's own: its ENTRYPOINT and
CMD. If a server runs, it makes the sandbox, because it has the images.`,
		Example: `  hutch run 'echo $((6*7))'
  hutch run -l python script.py first second < data.csv
  hutch run -l javascript -c 'console.log(process.version)'
  cat script.sh | hutch run
  hutch run --image python:3.12-slim 'python3 -V'
  echo 'print(6*7)' | hutch run --image python:3.12-slim
  hutch run --runtime native --timeout 10s -- python3 -c 'print(1)'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) (err error) {
			j.ofImage = p.image != "" && p.image != image.HostName && len(args) == 0 && j.language == "" && j.code == ""
			req, err := j.request(c, args, std.in)
			if err != nil {
				return err
			}
			if req.Timeout == 0 {
				req.Timeout = hutch.InSeconds(longTime)
			}
			if !j.ofImage {
				if err := req.Check(); err != nil {
					return err
				}
			}
			b, err := p.begin(c.Context(), h, std, newLog(std, verbose))
			if err != nil {
				return err
			}
			defer func() {
				if cerr := b.end(); err == nil {
					err = cerr
				}
			}()
			if j.ofImage {
				if req.Command, err = b.entrypoint(c.Context()); err != nil {
					return err
				}
			}
			return j.execute(c.Context(), b, b.sandbox, req, std)
		},
	}
	j.flags(c)
	p.flags(c)
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "log what is done")
	return c
}
