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

	"hutch"
	"hutch/client"
	"hutch/internal/coding"
	"hutch/internal/patch"
)

const agentHelp = `
The agent works in a sandbox of its own, on a copy of the repository. The key for its
model stays in the server, which adds it to the agent's requests. What the agent does
is shown on the standard error; the standard output gets what it has changed, as a
difference. Nothing of the repository runs on this machine.

Without --rm the session stays for a week, and sleeps while it is not used: see
` + "`hutch agent --help`" + `. Ctrl-C ends the agent, and keeps the session.
` + remoteHelp

// claudeFirst says what hutch claude needs before its first use.
const claudeFirst = `
Before the first time, in a clone of Hutch, make the template that has Claude Code, and give
the server your key:

  hutch template create claude-code --build templates/claude-code \
    --build-allow deb.debian.org --build-allow registry.npmjs.org --memory 2048 --disk 4096
  hutch secret set ANTHROPIC_API_KEY --host api.anthropic.com
`

// agentRun are the flags of a run.
type agentRun struct {
	placement
	env         []string
	repo, ref   string
	username    string
	passwordIn  bool
	prompt      string
	timeout     time.Duration
	keep        time.Duration
	tries       int
	detach, rm  bool
	asJSON      bool
	destination changeFlags
}

// changeFlags set how a diff is applied.
type changeFlags struct {
	apply   bool
	branch  string
	message string
}

func (f *changeFlags) flags(c *cobra.Command) {
	s := c.Flags()
	s.StringVar(&f.branch, "branch", "", "put the change onto a new branch of `NAME` in the folder, as a commit; its files do not change")
	s.StringVarP(&f.message, "message", "m", "", "message of that commit (default: the first line of the prompt)")
}

// put applies a diff as the flags say.
func (f *changeFlags) put(ctx context.Context, std streams, dir, diff, prompt string) error {
	if f.branch != "" {
		message := f.message
		if message == "" {
			message, _, _ = strings.Cut(strings.TrimSpace(prompt), "\n")
		}
		id, err := patch.Commit(ctx, dir, f.branch, message, []byte(diff))
		if err != nil {
			return err
		}
		fmt.Fprintf(std.err, "hutch: committed %s on the new branch %s\n", id[:min(12, len(id))], f.branch)
	}
	if !f.apply {
		return nil
	}
	p, err := patch.Parse([]byte(diff))
	if err != nil {
		return err
	}
	skipped, err := p.Apply(dir)
	for _, name := range skipped {
		fmt.Fprintf(std.err, "hutch: warning: %s is a repository in the repository, and is left as it is\n", plain(name))
	}
	if err == nil {
		fmt.Fprintf(std.err, "hutch: changed %d files in %s\n", len(p.Files)-len(skipped), dir)
	}
	return err
}

func newClaude(h *home, std streams) *cobra.Command {
	c := newAgentRun(h, std, func([]string) (coding.Definition, error) { return coding.Named("claude") })
	c.Use, c.Args = "claude [flags]", cobra.NoArgs
	c.Short = "Let Claude Code work on a repository, in a sandbox of the server"
	c.Long = "Let Claude Code work on a repository, in a sandbox of the server.\n" + claudeFirst + agentHelp
	c.Example = `  hutch claude --repo . --prompt 'fix the failing test' --apply
  hutch claude --repo https://example.com/repo.git --prompt 'update the docs' > docs.diff
  hutch claude --repo . --prompt 'make it faster' --tries 4`
	return c
}

func newAgent(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "agent", Short: "Let coding agents work on repositories, and go back to their sessions",
		Long: `Let coding agents work on repositories, and go back to their sessions. A session is a
sandbox: it sleeps while it is not used, and hutch rm removes it.
` + remoteHelp,
		Args: cobra.ArbitraryArgs, RunE: func(c *cobra.Command, args []string) error {
			if err := refuseUnknownArgs(c, args); err != nil {
				return err
			}
			return c.Help()
		},
	}
	run := newAgentRun(h, std, func(args []string) (coding.Definition, error) { return definition(args[0]) })
	run.Use, run.Args = "run [flags] AGENT", cobra.ExactArgs(1)
	run.Short = "Let an agent work on a repository"
	run.Long = "Let an agent work on a repository. AGENT is " + strings.Join(coding.Names(), ", ") + ", or the path of a definition in YAML.\n" + agentHelp
	run.Example = `  hutch agent run codex --repo . --prompt 'fix the failing test' --apply
  hutch agent run ./my-agent.yaml --repo . --prompt 'fix the failing test'`
	c.AddCommand(run, newAgentList(h, std), newAgentAttach(h, std), newAgentResume(h, std), newAgentDiff(h, std), newAgentApply(h, std), newAgentStop(h, std), newAgentFork(h, std))
	return c
}

// definition returns the definition of a known agent, or of a file.
func definition(name string) (coding.Definition, error) {
	if !strings.ContainsAny(name, "./") {
		return coding.Named(name)
	}
	f, err := os.Open(name)
	if err != nil {
		return coding.Definition{}, hutch.Errorf(hutch.NotFound, "%v: give the name of an agent, or the path of its definition", err)
	}
	defer f.Close()
	text, err := readAll(f, name)
	if err != nil {
		return coding.Definition{}, err
	}
	return coding.ParseDefinition([]byte(text))
}

func newAgentRun(h *home, std streams, which func(args []string) (coding.Definition, error)) *cobra.Command {
	var f agentRun
	c := &cobra.Command{
		RunE: func(c *cobra.Command, args []string) error {
			d, err := which(args)
			if err != nil {
				return err
			}
			if err := f.check(std.in); err != nil {
				return err
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			return f.run(c.Context(), svc, d, std)
		},
	}
	f.flags(c)
	return c
}

func (f *agentRun) flags(c *cobra.Command) {
	s := c.Flags()
	s.StringVar(&f.repo, "repo", "", "the repository: a `URL` that the sandbox clones, or a folder of this machine, which is copied into it")
	s.StringVar(&f.ref, "ref", "", "branch or tag to clone (default: the remote's)")
	s.StringVar(&f.username, "username", "", "user name for a repository behind https")
	s.BoolVar(&f.passwordIn, "password-stdin", false, "read the password or token from the standard input, instead of $HUTCH_GIT_PASSWORD")
	s.StringVarP(&f.prompt, "prompt", "p", "", "what the agent is to do; - reads it from the standard input")
	positiveDurationVar(s, &f.timeout, "timeout", "t", 0, "end the agent after this time (default 1h)")
	positiveDurationVar(s, &f.keep, "keep", "", 0, "destroy the session after this time (default 7d)")
	s.IntVar(&f.tries, "tries", 1, "let this many agents try at once, in copies of one sandbox, and show a table")
	s.BoolVar(&f.destination.apply, "apply", false, "change the files of the folder: all of them, or none if the change of one does not fit")
	f.destination.flags(c)
	s.BoolVarP(&f.detach, "detach", "d", false, "print the session's id and return; the agent continues in the background")
	s.BoolVar(&f.rm, "rm", false, "destroy the session at the end")
	s.StringArrayVarP(&f.env, "env", "e", nil, "environment variable of all programs inside, NAME=VALUE, or NAME with the value that it has here; may be repeated")
	s.BoolVar(&f.asJSON, "json", false, "print the result as JSON, with the difference in it")
	f.placement.flags(c)
}

func (f *agentRun) check(stdin *os.File) (err error) {
	switch {
	case f.repo == "":
		return usageError{errors.New("--repo is missing: give a URL, or a folder, as in `--repo .`")}
	case f.prompt == "":
		return usageError{errors.New("--prompt is missing: say what the agent is to do")}
	case f.prompt == "-" && f.passwordIn:
		return usageError{errors.New("--prompt - and --password-stdin both read the standard input: set HUTCH_GIT_PASSWORD")}
	case f.tries < 1 || f.tries > hutch.MaxTries:
		return usageError{fmt.Errorf("--tries is %d: give 1 to %d", f.tries, hutch.MaxTries)}
	case f.tries > 1 && (f.destination.apply || f.destination.branch != "" || f.detach):
		return usageError{errors.New("--tries gives several changes: choose one with `hutch agent apply SESSION FOLDER`, and leave --apply, --branch and --detach out")}
	case f.detach && (f.rm || f.destination.apply || f.destination.branch != ""):
		return usageError{errors.New("--detach does not wait for the change: use `hutch agent apply` later, and leave --rm, --apply and --branch out")}
	case isURL(f.repo) && (f.destination.apply || f.destination.branch != ""):
		return usageError{errors.New("--apply and --branch change a folder of this machine: give --repo FOLDER, or save the difference")}
	case !isURL(f.repo) && (f.ref != "" || f.username != "" || f.passwordIn):
		return usageError{errors.New("--ref, --username and --password-stdin are for a URL: the folder is copied as it is")}
	}
	if !isURL(f.repo) {
		if info, err := os.Stat(f.repo); err != nil || !info.IsDir() {
			return hutch.Errorf(hutch.NotFound, "%s is not a folder of this machine: give one, or a URL such as https://example.com/repo.git", f.repo)
		}
	}
	if f.prompt == "-" {
		f.prompt, err = readAll(stdin, "the standard input")
	}
	return err
}

// isURL reports whether git treats a repository as remote.
func isURL(repo string) bool {
	before, _, short := strings.Cut(repo, ":")
	return strings.Contains(repo, "://") || short && strings.Contains(before, "@") && !strings.Contains(before, "/")
}

func (f *agentRun) run(ctx context.Context, svc *client.Client, d coding.Definition, std streams) error {
	task, err := f.task(ctx, svc, d, std)
	switch {
	case err != nil:
		return err
	case f.tries > 1:
		return f.tryAll(ctx, svc, task, std)
	case f.detach:
		s, _, err := coding.Begin(ctx, svc, task)
		if err != nil {
			return err
		}
		return printMade(std, s.ID, map[string]string{"sandboxId": s.ID}, f.asJSON, nil)
	}
	s, err := coding.Open(ctx, svc, d, task.Sandbox, task.Repository)
	if err != nil {
		return err
	}
	res, err := s.Prompt(ctx, f.prompt, f.timeout, newStage(std.err, "").show)
	if !f.remove(ctx, svc, s.ID, err == nil) {
		defer fmt.Fprintf(std.err, "hutch: the session is %s: continue with `hutch agent resume %[1]s --prompt TEXT`\n", s.ID)
	}
	if err != nil {
		return err
	}
	return f.finish(ctx, std, res)
}

// remove destroys a finished or cancelled session, if the flags say so. A session without a readable result is kept: it
// has the only copy of the work.
func (f *agentRun) remove(ctx context.Context, svc *client.Client, id string, hasResult bool) bool {
	if !f.rm || !hasResult && ctx.Err() == nil {
		return false
	}
	svc.Destroy(context.WithoutCancel(ctx), id, true)
	return true
}

// finish shows a result, and applies the change as the flags say.
func (f *agentRun) finish(ctx context.Context, std streams, res hutch.AgentResult) error {
	if err := showResult(std, res, f.asJSON); err != nil {
		return err
	}
	if err := f.destination.put(ctx, std, f.repo, res.Diff, f.prompt); err != nil {
		return err
	}
	return verdict(res)
}

// verdict returns the exit code of an agent that did not succeed.
func verdict(res hutch.AgentResult) error {
	switch {
	case res.TimedOut:
		return hutch.Errorf(hutch.Timeout, "the agent reached its time limit: give it more with --timeout")
	case !res.Success:
		return exitCode(max(res.ExitCode, 1))
	}
	return nil
}

// task returns the task that the flags describe.
func (f *agentRun) task(ctx context.Context, svc *client.Client, d coding.Definition, std streams) (t coding.Task, err error) {
	t = coding.Task{Agent: d, Sandbox: f.placement.request(""), Prompt: f.prompt, Timeout: f.timeout}
	if t.Sandbox.Env, err = environment(f.env); err != nil {
		return t, err
	}
	t.Sandbox.Timeout = hutch.InSeconds(f.keep)
	if isURL(f.repo) {
		t.Repository.GitCloneRequest = hutch.GitCloneRequest{URL: f.repo, Branch: f.ref, Username: f.username}
		t.Repository.Password, err = password(f.passwordIn, std.in)
	} else {
		t.Repository.Unpack = coding.FromFolder(f.repo)
	}
	if err != nil {
		return t, err
	}
	return t, pullFirst(ctx, svc, &t.Sandbox, std)
}

// showResult prints the diff or, as JSON, the whole result.
func showResult(std streams, res hutch.AgentResult, asJSON bool) error {
	if asJSON {
		return writeJSON(std.out, res)
	}
	fmt.Fprintf(std.err, "hutch: %s\n", summary(res))
	return showDiff(std.out, res.Diff)
}

// summary describes a result in one line.
func summary(res hutch.AgentResult) string {
	words := fmt.Sprintf("%d files changed, %d lines added, %d removed, in %v", res.Files, res.Added, res.Removed, (time.Duration(res.Duration) * time.Millisecond).Round(100*time.Millisecond))
	if u := res.Usage; u.InputTokens+u.OutputTokens > 0 {
		words += fmt.Sprintf("; %d turns, %d tokens in, %d out", u.Turns, u.InputTokens, u.OutputTokens)
		if u.Cost > 0 {
			words += fmt.Sprintf(", $%.2f", u.Cost)
		}
	}
	return words
}

// showDiff prints a difference. A terminal gets no character that steers it; a file or a pipe gets every byte.
func showDiff(w io.Writer, diff string) error {
	if showsTerminal(w) {
		diff = inert(diff)
	}
	_, err := io.WriteString(w, diff)
	return err
}
