package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
)

// Lifetimes of a sandbox that was created by an exec without a sandbox id.
const (
	sleepAfter = 5 * time.Minute
	// A session destroys its sandboxes. If the server is killed before that, this hard lifetime ends them.
	sessionLifetime = 24 * time.Hour
)

type execArgs struct {
	SandboxID string            `json:"sandboxId,omitempty" jsonschema:"sandbox to run in; without it a fresh one is made and its id returned"`
	Image     string            `json:"image,omitempty" jsonschema:"image of the fresh sandbox, such as python:3.12-slim; default: the server's programs"`
	Type      string            `json:"instanceType,omitempty" jsonschema:"size of the fresh sandbox, such as basic or standard-1"`
	Volumes   []string          `json:"volumes,omitempty" jsonschema:"volumes of the fresh sandbox: NAME:/PATH, or NAME:/PATH:ro to only read"`
	Command   string            `json:"command" jsonschema:"bash command line or, with language, source code"`
	Language  string            `json:"language,omitempty" jsonschema:"run command as source in this language, such as python, javascript, typescript, bash, go, ruby, c"`
	SessionID string            `json:"sessionId,omitempty" jsonschema:"name of a session, made if there is none: its calls share cwd, variables and functions; with language python, javascript or typescript it is an interpreter that keeps its state"`
	Timeout   hutch.Seconds     `json:"timeout,omitempty" jsonschema:"seconds until the command and all it started are killed; default 30"`
	Env       map[string]string `json:"env,omitempty" jsonschema:"environment variables"`
	Secrets   []string          `json:"secrets,omitempty" jsonschema:"secrets to set as environment variables: NAME, or VARIABLE=NAME"`
	Dir       string            `json:"cwd,omitempty" jsonschema:"absolute path to run in; default /workspace"`
	User      string            `json:"user,omitempty" jsonschema:"who it runs as, such as root; only in sandboxes with an image"`
	KeepAlive *bool             `json:"keepAlive,omitempty" jsonschema:"true: the sandbox never sleeps and outlives the session"`
}

// execOutput is the structured result of exec, and the data of its errors.
type execOutput struct {
	ExitCode      int      `json:"exitCode" jsonschema:"128+n for death by signal n"`
	Stdout        string   `json:"stdout"`
	Stderr        string   `json:"stderr"`
	Encoding      string   `json:"encoding,omitempty" jsonschema:"base64 when stdout or stderr is not UTF-8: then both are base64"`
	ExecutionTime int64    `json:"executionTime" jsonschema:"milliseconds"`
	SandboxID     string   `json:"sandboxId"`
	TimedOut      bool     `json:"timedOut"`
	Truncated     bool     `json:"truncated" jsonschema:"the middle of long output was left out"`
	Denied        []string `json:"denied,omitempty" jsonschema:"what the network denied meanwhile, as rules for the tool network"`
}

// unfinished is the error of a command that was ended early. It has the output until then.
type unfinished struct {
	error
	output interface{ into(data map[string]any) }
	text   string
}

func (u *unfinished) Unwrap() error { return u.error }

func (s *server) exec(ctx context.Context, c *call, in execArgs) (reply, error) {
	if err := need("command", in.Command, "a bash command line or, with language, source code"); err != nil {
		return reply{}, err
	}
	c.keepAlive()
	out := follow(ctx, c.req, in.Timeout)
	discard, err := s.place(caller.WithPulls(ctx, out.pull), c, in)
	if err != nil {
		out.close()
		return reply{}, err
	}
	res, err := s.run(ctx, c, in, out.add)
	out.close()
	switch {
	case err == nil:
		err = verdict(res, c.state)
	case len(res.Stdout)+len(res.Stderr) == 0:
		discard()
		return reply{}, err
	default:
		discard()
		res.ExitCode = -1 // no exit code is known
	}
	output, text := show(res, out.total)
	if denied := deniedWords(res.SandboxID, res.Denied); denied != "" {
		text = strings.TrimSuffix(text, "\n") + "\n" + denied
	}
	if err != nil {
		return reply{}, &unfinished{err, output, text}
	}
	if text == "" {
		text = "[no output]"
	}
	return reply{header(res) + text, output}, nil
}

// run runs the command. With a session and a language it runs code in a context, which can show images.
func (s *server) run(ctx context.Context, c *call, in execArgs, out func(hutch.Output) error) (hutch.ExecResult, error) {
	if in.SessionID != "" && in.Language != "" && in.User == "" { // Exec reports that a session cannot have a user
		return s.runCode(ctx, c, in, out)
	}
	return s.svc.Exec(ctx, c.sandbox, hutch.ExecRequest{
		Command: in.Command, Language: in.Language, SessionID: in.SessionID, Dir: in.Dir, User: in.User, Env: in.Env, Secrets: in.Secrets, Timeout: in.Timeout, MaxOutput: maxShown,
	}, out)
}

// place finds the sandbox to run in: the requested one, or a new one if the call names none. The caller calls discard
// if the call fails: it destroys the new sandbox, whose id the client then never gets.
func (s *server) place(ctx context.Context, c *call, in execArgs) (discard func(), err error) {
	keepAlive := in.KeepAlive
	if in.SandboxID != "" {
		c.sandbox = in.SandboxID
		if in.Image != "" {
			return nil, hutch.Errorf(hutch.Invalid, "a sandbox keeps the image that it began with: leave out image to use %q, or sandboxId to make a new one", in.SandboxID).Naming(hutch.AboutField, "image")
		}
		if in.Type != "" {
			return nil, hutch.Errorf(hutch.Invalid, "a sandbox keeps the size that it began with: leave out instanceType to use %q, or sandboxId to make a new one", in.SandboxID).Naming(hutch.AboutField, "instanceType")
		}
		if len(in.Volumes) > 0 {
			return nil, hutch.Errorf(hutch.Invalid, "a sandbox keeps the volumes that it began with: leave out volumes to use %q, or sandboxId to make a new one", in.SandboxID).Naming(hutch.AboutField, "volumes")
		}
		return func() {}, s.setKeepAlive(ctx, c, keepAlive)
	}
	req := hutch.CreateRequest{Image: in.Image, InstanceType: in.Type, SleepAfter: hutch.InSeconds(sleepAfter), OnIdle: hutch.IdleDestroy}
	for _, text := range in.Volumes {
		req.Volumes = append(req.Volumes, hutch.ParseVolumeMount(text))
	}
	if req.KeepAlive = keepAlive != nil && *keepAlive; req.KeepAlive {
		req.OnIdle = hutch.IdleHibernate
	} else if c.session != nil {
		req.OnIdle, req.Timeout = hutch.IdleHibernate, hutch.InSeconds(sessionLifetime)
	}
	sb, err := s.svc.Create(ctx, req)
	if err != nil {
		return nil, err
	}
	c.sandbox = sb.ID
	m := made{ctx, sb.ID}
	discard = func() { s.sessions.destroyOne(m, true) }
	if c.session != nil && !c.session.owns(m) {
		discard()
		return nil, hutch.Errorf(hutch.Unavailable, "the session has ended: start a new one")
	}
	return discard, nil
}

// setKeepAlive sets or clears keepAlive of the call's sandbox; nil changes nothing. A sandbox that was created for the
// session also loses its hard lifetime when keepAlive is set.
func (s *server) setKeepAlive(ctx context.Context, c *call, keepAlive *bool) error {
	if keepAlive == nil {
		return nil
	}
	req := hutch.UpdateRequest{KeepAlive: keepAlive}
	if c.session != nil && c.session.made(c.sandbox) {
		lifetime := hutch.InSeconds(sessionLifetime)
		if *keepAlive {
			lifetime = 0
		}
		req.Timeout = &lifetime
	}
	_, err := s.svc.Update(ctx, c.sandbox, req)
	return err
}

// verdict returns the error for a command that was ended by a limit.
func verdict(res hutch.ExecResult, state string) error {
	switch {
	case res.TimedOut && state != "":
		return hutch.Errorf(hutch.Timeout,
			"the code ran into its time limit after %s: %s. What it had started was killed. Give a longer timeout, or use startBackgroundProcess for what is to keep running; the sandbox %s and its files are still there",
			length(res.Duration), state, res.SandboxID)
	case res.TimedOut:
		return hutch.Errorf(hutch.Timeout,
			"the command ran into its time limit after %s and was killed, with everything it had started. Give a longer timeout, or use startBackgroundProcess for what is to keep running; the sandbox %s and its files are still there",
			length(res.Duration), res.SandboxID)
	case res.Limit != "":
		return hutch.Errorf(hutch.Exhausted,
			"the command reached the %s limit of the sandbox %s and was killed. Let it use less; the sandbox and its files are still there",
			res.Limit, res.SandboxID).With("limit", res.Limit)
	}
	return nil
}

// show turns a result into text and data, both within maxShown.
func show(res hutch.ExecResult, total map[hutch.Stream]int64) (execOutput, string) {
	forOut, forErr := share(len(res.Stdout), len(res.Stderr))
	stdout := printed{res.Stdout, total[hutch.Stdout]}.excerpt(forOut)
	stderr := printed{res.Stderr, total[hutch.Stderr]}.excerpt(forErr)
	o := execOutput{
		ExitCode: res.ExitCode, ExecutionTime: res.Duration.Milliseconds(), SandboxID: res.SandboxID, TimedOut: res.TimedOut,
		Truncated: res.Truncated || len(res.Stdout) > forOut || len(res.Stderr) > forErr, Denied: res.Denied,
	}
	o.Stdout, o.Stderr, o.Encoding = encode(stdout, stderr)
	return o, words(stdout, stderr, o.Encoding != "")
}

func words(stdout, stderr []byte, binary bool) string {
	var b strings.Builder
	b.WriteString(readable(stdout))
	if len(stderr) > 0 {
		if n := len(stdout); n > 0 && stdout[n-1] != '\n' {
			b.WriteByte('\n')
		}
		b.WriteString("[stderr]\n")
		b.WriteString(readable(stderr))
	}
	if binary {
		b.WriteString("\n[some bytes are not UTF-8 and show as \uFFFD here; the structured result has all of them in base64]")
	}
	return b.String()
}

func header(res hutch.ExecResult) string {
	if res.CompileError {
		return fmt.Sprintf("did not compile · exit %d of the compiler · %s\n", res.ExitCode, res.SandboxID)
	}
	return fmt.Sprintf("exit %d · %s · %s\n", res.ExitCode, length(res.Duration), res.SandboxID)
}

// length formats a duration for people.
func length(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// into adds the output to the data of an error.
func (o execOutput) into(data map[string]any) {
	data["exitCode"], data["stdout"], data["stderr"] = o.ExitCode, o.Stdout, o.Stderr
	data["executionTime"], data["sandboxId"] = o.ExecutionTime, o.SandboxID
	data["timedOut"], data["truncated"] = o.TimedOut, o.Truncated
	if o.Encoding != "" {
		data["encoding"] = o.Encoding
	}
}
