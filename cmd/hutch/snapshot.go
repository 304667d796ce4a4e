package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
)

func newSnapshot(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "snapshot", Short: "Save the state of sandboxes, with memory where the runtime can",
		Long: `Save the state of a sandbox at one moment, to make others that start in it: the files
and, on gvisor, the processes, their memory and the code contexts. The sandbox continues.
` + remoteHelp,
		Example: `  hutch snapshot create demo --name before
  hutch snapshot diff before
  hutch restore before
  hutch snapshot rm before`,
	}
	c.AddCommand(newSnapshotCreate(h, std), newSnapshotList(h, std, false), newSnapshotDiff(h, std), newSnapshotTag(h, std, "snapshot"), newSnapshotRemove(h, std, "snapshot"))
	return c
}

func newSnapshotCreate(h *home, std streams) *cobra.Command {
	var req hutch.SnapshotRequest
	var ttl time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use: "create SANDBOX", Short: "Make a snapshot of a sandbox, and print its id",
		Long: "Make a snapshot of a sandbox, and print its id. With memory it waits some\nseconds for a moment at which no command is under way.\n" + remoteHelp,
		Args: cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			req.TTL = hutch.InSeconds(ttl)
			snap, err := svc.Snapshot(ctx, args[0], req)
			return printSnapshot(std, snap, req.FilesOnly, asJSON, err)
		}),
	}
	f := c.Flags()
	f.StringVar(&req.Name, "name", "", "a name, which no other snapshot of yours has")
	f.BoolVar(&req.FilesOnly, "files-only", false, "leave memory out")
	positiveDurationVar(f, &ttl, "ttl", "", 0, "delete it after this time (default: never)")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// printSnapshot prints the id of a new snapshot or, as JSON, its record.
func printSnapshot(std streams, snap hutch.Snapshot, filesOnly, asJSON bool, err error) error {
	if err == nil && !asJSON && !snap.Memory && !filesOnly {
		fmt.Fprintf(std.err, "hutch: the runtime %s saves no memory: the snapshot has only the files\n", plain(snap.Runtime))
	}
	return printMade(std, snap.ID, snap, asJSON, err)
}

func newSnapshotList(h *home, std streams, named bool) *cobra.Command {
	var asJSON bool
	what := "snapshots"
	if named {
		what = "templates"
	}
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List " + what + ", the oldest first", Long: "List " + what + ", the oldest first.\n" + remoteHelp, Args: cobra.NoArgs,
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, _ []string) error {
			all, err := svc.Snapshots(ctx)
			if err != nil {
				return err
			}
			var list []hutch.Snapshot
			for _, s := range all {
				if s.Name != "" || !named {
					list = append(list, s)
				}
			}
			return writeList(std.out, asJSON, list, "SNAPSHOT\tNAMES\tSANDBOX\tRUNTIME\tMEMORY\tSIZE\tCREATED\tEXPIRES", snapshotRow)
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func snapshotRow(s hutch.Snapshot) []any {
	return []any{s.ID, dash(strings.Join(s.Names, " ")), s.SandboxID, s.Runtime, yesNo(s.Memory), size(s.Size), when(&s.CreatedAt, ""), when(s.ExpiresAt, "never")}
}

func newSnapshotRemove(h *home, std streams, noun string) *cobra.Command {
	var asJSON bool
	names := func(ctx context.Context, svc *client.Client) (names []string, err error) {
		list, err := svc.Snapshots(ctx)
		for _, s := range list {
			names = append(append(names, s.ID), s.Names...)
		}
		return names, err
	}
	c := &cobra.Command{
		Use: "rm " + strings.ToUpper(noun) + "...", Aliases: []string{"delete"}, Short: "Delete " + noun + "s, by id or name",
		Long: "Delete " + noun + "s, by id or name. Where one has several names, only the name is removed.\nSandboxes that began with one do not need it.\n" + goneHelp + remoteHelp,
		Args: cobra.MinimumNArgs(1),
		RunE: removal{noun, names, (*client.Client).DeleteSnapshot}.onEach(h, std, &asJSON),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newSnapshotTag(h *home, std streams, noun string) *cobra.Command {
	var req hutch.SnapshotTag
	c := &cobra.Command{
		Use: "tag " + strings.ToUpper(noun) + " NAME[:TAG]", Short: "Give a " + noun + " another name",
		Long: "Give a " + noun + " another name. With --replace, a name that another one has moves to this\none; the other is deleted if it has no name left.\n" + remoteHelp,
		Args: cobra.ExactArgs(2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			req.Name = args[1]
			_, err := svc.TagSnapshot(ctx, args[0], req)
			if noun == "template" && errors.Is(err, hutch.NotFound) {
				return noTemplate(args[0], nil)
			}
			return err
		}),
	}
	c.Flags().BoolVar(&req.Replace, "replace", false, "move the name from the one that has it")
	return withJSON(c, std, func(args []string) done { return done{noun: args[0], "name": args[1]} })
}

func newRestore(h *home, std streams) *cobra.Command {
	var asJSON bool
	var env []string
	var req hutch.CreateRequest
	c := &cobra.Command{
		Use: "restore SNAPSHOT", Short: "Make a sandbox that begins as a snapshot, and print its id",
		Long: "Make a sandbox that begins as a snapshot or template, by its id or name, and print\nthe sandbox's id.\n" + remoteHelp,
		Args: cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			var err error
			if req.Env, err = environment(env); err != nil {
				return err
			}
			req.Snapshot = args[0]
			if err := vacant(ctx, svc, req.ID); err != nil {
				return err
			}
			sb, err := svc.Create(ctx, req)
			return printMade(std, sb.ID, sb, asJSON, err)
		}),
	}
	f := c.Flags()
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.StringVar(&req.ID, "id", "", "its id (default: a new one)")
	f.BoolVar(&req.FilesOnly, "files-only", false, "take only the files")
	f.StringArrayVarP(&env, "env", "e", nil, "environment variable, `NAME=VALUE`, or NAME with the value that it has here; may be repeated")
	return c
}

// vacant refuses an id that is in use: create would return the existing sandbox, but the person wants the restored
// one.
func vacant(ctx context.Context, svc *client.Client, id string) error {
	if id == "" {
		return nil
	}
	_, err := svc.Sandbox(ctx, id)
	switch {
	case errors.Is(err, hutch.NotFound):
		return nil
	case err != nil:
		return err
	}
	return hutch.Errorf(hutch.Conflict, "there is a sandbox %q already, and it stays as it is: choose another id, or destroy it first with `hutch rm %s`", id, id)
}

func newFork(h *home, std streams) *cobra.Command {
	var req hutch.ForkRequest
	var env []string
	var asJSON bool
	c := &cobra.Command{
		Use: "fork SANDBOX", Short: "Make copies of a sandbox as it is now, and print their ids",
		Long: "Make copies of a sandbox as it is now, all or none, and print their ids: on gvisor with\nits processes and their memory, elsewhere with its files.\n" + remoteHelp,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if req.Count < 1 { // to the server, 0 means that no number was given
				return usageError{fmt.Errorf("--count is %d: give 1 to %d copies", req.Count, hutch.MaxForks)}
			}
			var err error
			if req.Env, err = environment(env); err != nil {
				return err
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			forks, err := svc.Fork(c.Context(), args[0], req)
			if err != nil {
				return err
			}
			if len(forks) > 0 && forks[0].FilesOnly {
				fmt.Fprintf(std.err, "hutch: warning: the runtime %s saves no memory: a copy has only the files of the sandbox, not its programs and variables\n", plain(forks[0].Runtime))
			}
			return writeList(std.out, asJSON, forks, "", func(s hutch.Sandbox) []any { return []any{s.ID} })
		},
	}
	c.Flags().IntVarP(&req.Count, "count", "n", 1, "how many")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringArrayVarP(&env, "env", "e", nil, "environment variable of the copies, `NAME=VALUE`, or NAME with the value that it has here; may be repeated")
	return c
}

func newPause(h *home, std streams) *cobra.Command {
	return newStateVerb(h, std, "pause SANDBOX", "Pause everything in a sandbox until it is used",
		"Pause everything in a sandbox, in memory, until it is used or resumed.", (*client.Client).Pause)
}

func newHibernate(h *home, std streams) *cobra.Command {
	var req hutch.HibernateRequest
	c := newStateVerb(h, std, "hibernate SANDBOX", "Put a sandbox to sleep now, until it is used",
		"Put a sandbox to sleep now: its memory and files go to disk, with the programs that run in it, and its\nnext use wakes it. A runtime that cannot keep memory keeps the files, and the sandbox is stopped.",
		func(svc *client.Client, ctx context.Context, sandbox string) (hutch.Sandbox, error) {
			sb, err := svc.Hibernate(ctx, sandbox, req)
			if err == nil && sb.Status == hutch.Stopped && !req.FilesOnly {
				fmt.Fprintf(std.err, "hutch: warning: the runtime %s saves no memory: the programs and variables of the sandbox have ended, and only its files are kept\n", plain(sb.Runtime))
			}
			return sb, err
		})
	c.Flags().BoolVar(&req.FilesOnly, "files-only", false, "keep no memory: background processes end, and the next use starts the sandbox with its files")
	c.Aliases = []string{"sleep"}
	return c
}

func newResume(h *home, std streams) *cobra.Command {
	c := newStateVerb(h, std, "resume SANDBOX", "Resume a sandbox that is paused, hibernated or stopped",
		"Resume a sandbox that is paused, hibernated or stopped. Any use does so, too.", (*client.Client).Resume)
	c.Aliases = []string{"wake"}
	return c
}

// newStateVerb returns a command that changes the state of a sandbox.
func newStateVerb(h *home, std streams, use, short, long string, do func(*client.Client, context.Context, string) (hutch.Sandbox, error)) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: use, Short: short, Long: long + "\n" + remoteHelp, Args: cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			sb, err := do(svc, ctx, args[0])
			if err == nil && asJSON {
				err = writeJSON(std.out, sb)
			}
			return err
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
