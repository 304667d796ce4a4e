package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
	"hutch/internal/coding"
)

// sessionOf finds a session. If file is not nil, it can name a file with the definition of the session's agent.
func sessionOf(ctx context.Context, svc *client.Client, id string, file *string) (*coding.Session, error) {
	var d coding.Definition
	if file != nil && *file != "" {
		var err error
		if d, err = definition(*file); err != nil {
			return nil, err
		}
	}
	return coding.Find(ctx, svc, id, d)
}

const definitionUsage = "definition of the agent, if it is one of your own: the `FILE` that hutch agent run got"

// onSession returns the RunE of a command about one session. file is the command's flag --definition, or nil.
func onSession(h *home, file *string, run func(ctx context.Context, svc *client.Client, s *coding.Session, args []string) error) func(*cobra.Command, []string) error {
	return onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
		s, err := sessionOf(ctx, svc, args[0], file)
		if err != nil {
			return err
		}
		return run(ctx, svc, s, args[1:])
	})
}

func newAgentList(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the sessions", Long: "List the sessions with agents, oldest first.\n" + remoteHelp, Args: cobra.NoArgs,
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, _ []string) error {
			list, err := coding.List(ctx, svc)
			if err != nil {
				return err
			}
			return writeList(std.out, asJSON, list, "SESSION\tAGENT\tSANDBOX\tWORK\tCREATED", func(s coding.Listed) []any {
				return []any{s.ID, s.Agent, s.Status, s.Work, s.CreatedAt.Local().Format(time.DateTime)}
			})
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newAgentAttach(h *home, std streams) *cobra.Command {
	var file string
	var asJSON bool
	c := &cobra.Command{
		Use: "attach [flags] SESSION", Short: "Follow what an agent does, from the beginning of its last prompt",
		Long: "Follow what an agent does, from the beginning of its last prompt, until it has ended. The agent\ncontinues when this command ends.\n" + remoteHelp,
		Args: cobra.ExactArgs(1),
		RunE: onSession(h, &file, func(ctx context.Context, _ *client.Client, s *coding.Session, _ []string) error {
			p, err := s.Last(ctx)
			if err != nil {
				return err
			}
			res, err := s.Follow(ctx, p.ID, newStage(std.err, "").show)
			if err == nil {
				err = showResult(std, res, asJSON)
			}
			return errors.Join(err, verdict(res))
		}),
	}
	c.Flags().StringVar(&file, "definition", "", definitionUsage)
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON, with the difference in it")
	return c
}

func newAgentResume(h *home, std streams) *cobra.Command {
	var file, prompt string
	var timeout time.Duration
	var asJSON, detach bool
	c := &cobra.Command{
		Use: "resume [flags] SESSION", Short: "Give an agent its next prompt", Long: "Give an agent its next prompt. It remembers the ones before.\n" + remoteHelp,
		Example: `  hutch agent resume fuzzy-fox --prompt 'now write a test for it'`,
		Args:    cobra.ExactArgs(1),
		RunE: onSession(h, &file, func(ctx context.Context, _ *client.Client, s *coding.Session, _ []string) (err error) {
			if prompt == "-" {
				if prompt, err = readAll(std.in, "the standard input"); err != nil {
					return err
				}
			}
			if detach {
				_, err := s.Start(ctx, prompt, timeout)
				return printMade(std, s.ID, map[string]string{"sandboxId": s.ID}, asJSON, err)
			}
			res, err := s.Prompt(ctx, prompt, timeout, newStage(std.err, "").show)
			if err != nil {
				return err
			}
			return errors.Join(showResult(std, res, asJSON), verdict(res))
		}),
	}
	f := c.Flags()
	f.StringVarP(&prompt, "prompt", "p", "", "what the agent is to do; - reads it from the standard input")
	f.StringVar(&file, "definition", "", definitionUsage)
	positiveDurationVar(f, &timeout, "timeout", "t", 0, "end the agent after this time (default 1h)")
	f.BoolVarP(&detach, "detach", "d", false, "return at once; the agent continues in the background")
	f.BoolVar(&asJSON, "json", false, "print the result as JSON, with the difference in it")
	return c
}

func newAgentDiff(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "diff [flags] SESSION", Short: "Print what has changed since a session began", Long: "Print what has changed since a session began, as git does.\n" + remoteHelp, Args: cobra.ExactArgs(1),
		RunE: onSession(h, nil, func(ctx context.Context, _ *client.Client, s *coding.Session, _ []string) error {
			diff, sum, err := s.Diff(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(std.out, map[string]any{"sandboxId": s.ID, "diff": string(diff), "files": sum.Files, "added": sum.Added, "removed": sum.Removed})
			}
			return showDiff(std.out, string(diff))
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newAgentApply(h *home, std streams) *cobra.Command {
	var f changeFlags
	c := &cobra.Command{
		Use: "apply [flags] SESSION FOLDER", Short: "Bring what a session has changed into a folder of this machine",
		Long: `Bring what a session has changed into a folder of this machine: all of it, or nothing if
a file there is not as the agent found it. With --branch, the files do not change.
` + remoteHelp,
		Example: `  hutch agent apply fuzzy-fox .
  hutch agent apply --branch fix-parser -m 'Fix the parser' fuzzy-fox .`,
		Args: cobra.ExactArgs(2),
		RunE: onSession(h, nil, func(ctx context.Context, _ *client.Client, s *coding.Session, args []string) error {
			diff, _, err := s.Diff(ctx)
			if err != nil {
				return err
			}
			f.apply = f.branch == ""
			return f.put(ctx, std, args[0], string(diff), "Changes of session "+s.ID)
		}),
	}
	f.flags(c)
	return withJSON(c, std, func(args []string) done { return done{"sandboxId": args[0], "folder": args[1]} })
}

func newAgentStop(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "stop SESSION", Short: "End what an agent does, and keep its session", Long: "End what an agent does, and keep its session.\n" + remoteHelp, Args: cobra.ExactArgs(1),
		RunE: onSession(h, nil, func(ctx context.Context, _ *client.Client, s *coding.Session, _ []string) error { return s.Stop(ctx) }),
	}
	return withJSON(c, std, func(args []string) done { return done{"sandboxId": args[0]} })
}

func newAgentFork(h *home, std streams) *cobra.Command {
	var count int
	var asJSON bool
	c := &cobra.Command{
		Use: "fork [flags] SESSION", Short: "Make copies of a session, and print their ids",
		Long: "Make copies of a session, and print their ids: the repository and what\nthe agent remembers are the same.\n" + remoteHelp, Args: cobra.ExactArgs(1),
		RunE: onSession(h, nil, func(ctx context.Context, _ *client.Client, s *coding.Session, _ []string) error {
			if count < 1 || count > hutch.MaxForks {
				return usageError{fmt.Errorf("--count is %d: give 1 to %d", count, hutch.MaxForks)}
			}
			list, err := s.Fork(ctx, count)
			if err != nil {
				return err
			}
			ids := make([]string, len(list))
			for i, s := range list {
				ids[i] = s.ID
			}
			return writeList(std.out, asJSON, ids, "", func(id string) []any { return []any{id} })
		}),
	}
	c.Flags().IntVarP(&count, "count", "n", 1, "how many")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
