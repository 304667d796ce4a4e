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
	"golang.org/x/sys/unix"

	"hutch"
	"hutch/client"
)

// job is a command line or a source text to run, as the flags describe it.
type job struct {
	language string
	code     string
	dir      string
	env      []string
	secrets  []string
	timeout  time.Duration
	noStdin  bool
	asJSON   bool
}

func (j *job) flags(c *cobra.Command) {
	f := c.Flags()
	f.SetInterspersed(false) // what follows the command is the command's
	f.StringVarP(&j.language, "language", "l", "", "run source text in this language: python, javascript, typescript, bash, go ...")
	f.StringVarP(&j.code, "code", "c", "", "the source text itself, instead of a file")
	f.StringVarP(&j.dir, "cwd", "w", "", "working directory inside (default /workspace)")
	f.StringArrayVarP(&j.env, "env", "e", nil, "environment variable, NAME=VALUE or NAME to pass ours on; may be repeated")
	f.StringArrayVar(&j.secrets, "secret", nil, "secret to set as environment variable, NAME or VARIABLE=NAME; may be repeated")
	f.DurationVarP(&j.timeout, "timeout", "t", 0, "kill everything that it started after this time, e.g. 90s")
	f.BoolVarP(&j.noStdin, "no-stdin", "n", false, "give the program an empty standard input")
	f.BoolVar(&j.asJSON, "json", false, "print the result as JSON at the end, instead of output as it comes")
}

// request turns flags and arguments into what the engine is asked for.
func (j *job) request(args []string, stdin *os.File) (hutch.ExecRequest, error) {
	env, err := environment(j.env)
	if err != nil {
		return hutch.ExecRequest{}, err
	}
	req := hutch.ExecRequest{Language: j.language, Dir: j.dir, Env: env, Secrets: j.secrets, Timeout: hutch.InSeconds(j.timeout)}
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

// source finds the command and reports whether it came from the standard
// input, which then is used up.
func (j *job) source(req *hutch.ExecRequest, args []string, stdin *os.File) (used bool, err error) {
	switch {
	case j.code != "":
		if len(args) > 0 {
			return false, usageError{fmt.Errorf("with --code there is no other argument but a program's, with --language; got %q", args)}
		}
		req.Command = j.code
		return false, nil
	case len(args) > 0 && j.language == "":
		req.Command, err = commandLine(args)
		return false, err
	case len(args) == 1 && args[0] != "-":
		req.Command, err = readSource(args[0])
		return false, err
	}
	if len(args) == 0 && isTerminal(stdin) {
		return false, usageError{errors.New("nothing to run: give a command, a file with --language, source with --code, or source on the standard input")}
	}
	req.Command, err = readAll(stdin, "the standard input")
	return true, err
}

// commandLine is one argument as bash reads it, or several as they are. A
// "--" in front of them is left out; an option there was meant for us.
func commandLine(args []string) (string, error) {
	if args[0] == "--" && len(args) > 1 {
		args = args[1:]
	} else if strings.HasPrefix(args[0], "-") {
		return "", usageError{fmt.Errorf("%s stands where the command should: flags go before the sandbox and the command", args[0])}
	}
	if len(args) == 1 {
		return args[0], nil
	}
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " "), nil
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
	return string(b), nil // one byte too many is refused by the engine
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

// execute runs a request with output as it comes or, as JSON, in its result. It
// returns the program's exit code as an error.
func (j *job) execute(ctx context.Context, svc hutch.Service, sandbox string, req hutch.ExecRequest, std streams) error {
	out := client.To(std.out, std.err)
	if j.asJSON {
		out = nil
	} else {
		req.MaxOutput = 2 // it goes out as it comes
	}
	res, err := svc.Exec(ctx, sandbox, req, out)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err == nil && j.asJSON {
		err = writeJSON(std.out, res)
	}
	if err != nil {
		return err
	}
	remark(std.err, res)
	if res.ExitCode != 0 {
		return exitCode(res.ExitCode)
	}
	return nil
}

// remark says what an exit code does not.
func remark(w io.Writer, res hutch.ExecResult) {
	switch {
	case res.TimedOut:
		fmt.Fprintf(w, "hutch: killed at its time limit, after %v\n", res.Duration.Round(time.Millisecond))
	case res.CompileError:
		fmt.Fprintln(w, "hutch: the program did not compile")
	case res.Limit != "":
		fmt.Fprintf(w, "hutch: killed at the sandbox's %s limit\n", res.Limit)
	}
}

// placement is what kind of sandbox to make, as flags.
type placement struct {
	runtime string
	limits  hutch.Limits
	labels  map[string]string
	network networkFlags
}

// request asks for the sandbox of an id.
func (p *placement) request(id string) hutch.CreateRequest {
	return hutch.CreateRequest{ID: id, Runtime: p.runtime, Limits: p.limits, Labels: p.labels, Network: p.network.network()}
}

func (p *placement) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&p.runtime, "runtime", "", "gvisor (strong isolation) or native (fast, for code you trust more); default: the first that works")
	p.network.flags(f, "network", "allow", "a sandbox that is made")
	f.Float64Var(&p.limits.CPU, "cpu", 0, "cores (default 1)")
	f.IntVar(&p.limits.Memory, "memory", 0, "MiB (default 512)")
	f.IntVar(&p.limits.Disk, "disk", 0, "MiB of written files (default 1024; on native half the memory)")
	f.IntVar(&p.limits.PIDs, "pids", 0, "processes and threads (default 512)")
	f.StringToStringVar(&p.labels, "label", nil, "a label for a new sandbox, NAME=VALUE, for `hutch ls --label`; may be repeated")
}

func newRun(h *home, std streams) *cobra.Command {
	var j job
	var p placement
	var verbose bool
	c := &cobra.Command{
		Use:   "run [flags] [COMMAND [ARG...] | FILE [ARG...]]",
		Short: "Run a command or a source file in a sandbox of its own, without a server",
		Long: `Run a command or a source file in a new sandbox that goes when it ends.

Input and output are passed through, and so is the exit code. Hutch's own
failures are exit code 125. Without an argument the source is read from the
standard input. There is no time limit but --timeout.`,
		Example: `  hutch run 'echo $((6*7))'
  hutch run -l python script.py --verbose < data.csv
  hutch run -l javascript -c 'console.log(process.version)'
  cat script.sh | hutch run
  hutch run --runtime native --timeout 10s -- python3 -c 'print(1)'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) (err error) {
			req, err := j.request(args, std.in)
			if err != nil {
				return err
			}
			if req.Timeout == 0 {
				req.Timeout = 24 * 3600
			}
			m, err := h.embed(c.Context(), p.runtime, newLog(std, verbose))
			if err != nil {
				return err
			}
			defer func() {
				if cerr := m.Close(); err == nil {
					err = cerr
				}
			}()
			sb, err := m.Create(c.Context(), hutch.CreateRequest{Limits: p.limits, Network: p.network.network(), KeepAlive: true})
			if err != nil {
				return err
			}
			return j.execute(c.Context(), m, sb.ID, req, std)
		},
	}
	j.flags(c)
	p.flags(c)
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "log what is done")
	return c
}
