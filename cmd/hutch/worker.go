package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
	"hutch/internal/worker"
)

func newWorker(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "worker", Short: "Run the tools of hosted agents in sandboxes of yours",
		Long: `Run the tools of agents that others host in sandboxes of yours. A worker connects to
the service of the agents; nothing has to reach this machine.
` + remoteHelp,
		Example: `  hutch worker claude env_01ABC
  hutch worker cursor my-pool`,
	}
	c.AddCommand(newWorkerClaude(h, std), newWorkerCursor(h, std))
	return c
}

// sessionLifetime is how long the sandbox of a session is kept without --lifetime.
const sessionLifetime = 30 * 24 * time.Hour

// claudeWorker is a worker of Claude Managed Agents, as the flags describe it.
type claudeWorker struct {
	worker.Options
	sandbox        createFlags
	keyFile        string
	local, verbose bool
}

func newWorkerClaude(h *home, std streams) *cobra.Command {
	var w claudeWorker
	c := &cobra.Command{
		Use: "claude [flags] [ENVIRONMENT]", Short: "Be a self-hosted environment of Claude Managed Agents",
		Long: `Run the tools of Claude Managed Agents in sandboxes: a sandbox for each session, which
hibernates between turns. ENVIRONMENT is the id of a self-hosted environment (default:
$ANTHROPIC_ENVIRONMENT_ID). Its key is $ANTHROPIC_ENVIRONMENT_KEY, or in --key-file; it
stays in this process and enters no sandbox.

SIGTERM and Ctrl-C end it: it takes no more work, lets calls that run finish for the
time of --drain, and hands its sessions back.
` + remoteHelp,
		Example: `  ANTHROPIC_ENVIRONMENT_KEY=... hutch worker claude env_01ABC --image python:3.12-slim --outputs ./outputs
  hutch worker claude env_01ABC --key-file key --local`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return w.run(c.Context(), h, std, args) },
	}
	f := c.Flags()
	f.StringVar(&w.keyFile, "key-file", "", "file with the key of the environment (default: $ANTHROPIC_ENVIRONMENT_KEY)")
	f.StringVar(&w.URL, "base-url", "", "base URL of the API (default: $ANTHROPIC_BASE_URL, else Anthropic's)")
	f.StringVar(&w.Name, "name", "", "name of this worker in the console (default: the host's name and a random one)")
	f.IntVar(&w.Sessions, "sessions", 4, "most sessions at once")
	durationVar(f, &w.Idle, "idle", "", time.Minute, "how long a session waits for its next turn before it gives its place to another")
	durationVar(f, &w.Drain, "drain", "", time.Minute, "how long calls that run can continue after SIGTERM")
	f.StringVar(&w.Outputs, "outputs", "", "folder of this machine that gets what sessions leave in "+worker.OutputsDir)
	f.BoolVar(&w.local, "local", false, "make the sandboxes in this process, without a server; they are destroyed when it ends")
	f.BoolVarP(&w.verbose, "verbose", "v", false, "log more")
	w.sandbox.flags(c)
	return c
}

func (w *claudeWorker) run(ctx context.Context, h *home, std streams, args []string) (err error) {
	if w.Key, err = takeKey("ANTHROPIC_ENVIRONMENT_KEY", w.keyFile); err != nil {
		return err
	}
	w.Environment = os.Getenv("ANTHROPIC_ENVIRONMENT_ID")
	if len(args) > 0 {
		w.Environment = args[0]
	}
	w.URL = cmp.Or(w.URL, os.Getenv("ANTHROPIC_BASE_URL"))
	if w.Sandbox, err = w.sandbox.request(ctx, std, nil); err != nil {
		return err
	}
	w.Sandbox.Timeout = cmp.Or(w.Sandbox.Timeout, hutch.InSeconds(sessionLifetime))
	w.Log = workerLog(std, w.verbose)
	svc, end, err := w.service(ctx, h)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	return worker.Run(ctx, svc, w.Options)
}

// service returns the server or, with --local, an engine of this process.
func (w *claudeWorker) service(ctx context.Context, h *home) (hutch.Service, func() error, error) {
	if w.local {
		m, err := h.embed(ctx, w.sandbox.runtime, w.sandbox.image, w.Log)
		if err != nil {
			return nil, nil, err
		}
		return m, m.Close, nil
	}
	svc, err := h.dial()
	if err != nil {
		return nil, nil, err
	}
	if _, err := svc.Sandboxes(ctx, hutch.Filter{Brief: true}); err != nil {
		return nil, nil, err // reported at the start, and not only for the first session
	}
	return svc, func() error { svc.Close(); return nil }, nil
}

// takeKey reads a key of a service from a file or a variable. It removes the variable, so that no program that this
// process starts gets the key.
func takeKey(variable, file string) (string, error) {
	key := os.Getenv(variable)
	os.Unsetenv(variable)
	if file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", hutch.Errorf(hutch.Invalid, "%v: give the path of a file with the key", err)
		}
		key = string(b)
	}
	if key = strings.TrimSpace(key); key == "" {
		return "", usageError{fmt.Errorf("there is no key: set %s, or give a file with --key-file", variable)}
	}
	return key, nil
}

// workerLog logs the events of a worker, line by line.
func workerLog(std streams, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: level}))
}

// cursorHosts are the hosts that workers connect to, according to public descriptions. This is not verified with
// Cursor's service.
var cursorHosts = []string{"api2.cursor.sh", "api2direct.cursor.sh"}

// cursorKey is the variable with the key of Cursor.
const cursorKey = "CURSOR_API_KEY"

// cursorSecret returns the secret with the key for a pool: pools can have different keys.
func cursorSecret(pool string) string {
	sum := sha256.Sum256([]byte(pool))
	return fmt.Sprintf("%s_%x", cursorKey, sum[:4])
}

// cursorLifetime limits the sandbox of a worker whose process was killed before it could destroy the sandbox.
const cursorLifetime = longTime + time.Hour

func newWorkerCursor(h *home, std streams) *cobra.Command {
	var f createFlags
	var keyFile string
	hosts := cursorHosts
	c := &cobra.Command{
		Use: "cursor [flags] POOL [-- COMMAND [ARG...]]", Short: "Run a worker of Cursor's cloud agents in a sandbox",
		Long: `Make a sandbox, run a worker of the pool in it, and destroy the sandbox when the worker
ends: the command to give Cursor's controller as its spawn command. The program is
"agent worker --pool POOL start", which the image or template must have, or COMMAND.

The key is $CURSOR_API_KEY, or in --key-file. The server keeps it as a secret of the
pool, and adds it to requests for the hosts of --host; in the sandbox is a placeholder.
This was not tried with Cursor's service, which needs an Enterprise plan, and the
default hosts are not verified.
` + remoteHelp,
		Example: `  CURSOR_API_KEY=... hutch worker cursor --template cursor my-pool
  CURSOR_API_KEY=... hutch worker cursor --template cursor my-pool -- agent worker --pool my-pool start`,
		Args: cobra.MinimumNArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			key, err := takeKey(cursorKey, keyFile)
			if err != nil {
				return err
			}
			secret := hutch.SecretRequest{Value: key, Brokered: &hutch.Brokering{Hosts: hosts}}
			name := cursorSecret(args[0])
			if _, err := svc.SetSecret(ctx, name, secret); err != nil {
				return err
			}
			f.req.Secrets = append(f.req.Secrets, cursorKey+"="+name)
			command := args[1:]
			switch {
			case len(command) == 0:
				command = []string{"agent", "worker", "--pool", args[0], "start"}
			case command[0] == "--":
				command = command[1:]
			}
			return f.runOnce(ctx, svc, command, std)
		}),
	}
	c.Flags().SetInterspersed(false)
	c.Flags().StringVar(&keyFile, "key-file", "", "file with the key (default: $CURSOR_API_KEY)")
	c.Flags().StringArrayVar(&hosts, "host", cursorHosts, "`NAME` of a host that gets the key; may be repeated")
	f.flags(c)
	return c
}

// runOnce runs a command in its own sandbox, and returns its exit code.
func (f *createFlags) runOnce(ctx context.Context, svc *client.Client, command []string, std streams) error {
	req, err := f.request(ctx, std, nil)
	if err != nil {
		return err
	}
	req.KeepAlive = true
	req.Timeout = cmp.Or(req.Timeout, hutch.InSeconds(cursorLifetime))
	sb, err := svc.Create(ctx, req)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if _, err := svc.Destroy(ctx, sb.ID, true); err != nil {
			fmt.Fprintf(std.err, "hutch: warning: the sandbox %s stays: %v\n", sb.ID, err)
		}
	}()
	j := job{timeout: longTime, ownSandbox: true}
	return j.execute(ctx, svc, sb.ID, hutch.ExecRequest{Command: hutch.CommandLine(command...), Timeout: hutch.InSeconds(longTime)}, std)
}
