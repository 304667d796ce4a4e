package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
)

func newCreate(h *home, std streams) *cobra.Command {
	var f createFlags
	var asJSON bool
	c := &cobra.Command{
		Use: "create [flags] [SANDBOX]", Aliases: []string{"new"}, Short: "Make a sandbox, and print its id",
		Long: `Make a sandbox, and print its id: the given one, or a new one. It is an error when
there is one of that id. Other commands make a sandbox as well, if there is none;
this one can say everything about it.
` + remoteHelp,
		Example: `  hutch create --keep-alive --env STAGE=test web
  hutch create --memory 2048 --allow pypi.org --allow files.pythonhosted.org
  hutch create --image python:3.12-slim py
  hutch create --network open --block 0.0.0.0/0:25 --link db=my-database shop
  hutch create --allow api.example.com --header api.example.com:Authorization api < value
  hutch create --lifetime 2d --on-idle destroy scratch`,
		Args: cobra.MaximumNArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			req, err := f.request(ctx, std, args)
			if err != nil {
				return err
			}
			if err := vacant(ctx, svc, req.ID); err != nil {
				return err
			}
			if err := pullFirst(ctx, svc, &req, std); err != nil {
				return err
			}
			sb, err := svc.Create(ctx, req)
			return printMade(std, sb.ID, sb, asJSON, err)
		}),
	}
	f.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// printMade prints the id of a new thing or, as JSON, its record.
func printMade(std streams, id string, record any, asJSON bool, err error) error {
	switch {
	case err != nil:
		return err
	case asJSON:
		return writeJSON(std.out, record)
	}
	_, err = fmt.Fprintln(std.out, id)
	return err
}

// createFlags are the flags for every setting of a sandbox.
type createFlags struct {
	placement
	hidden               hiddenFlags
	env                  []string
	onIdle               string
	sleepAfter, lifetime time.Duration
	req                  hutch.CreateRequest
}

func (f *createFlags) flags(c *cobra.Command) {
	f.placement.flags(c)
	s := c.Flags()
	f.hidden.flags(s)
	userVar(s, &f.req.User, "who commands run as, and whose its files are")
	countVar(s, &f.limits.Processes, "processes", "background processes at once (default 10)")
	s.StringArrayVarP(&f.env, "env", "e", nil, "environment variable of all programs inside, `NAME=VALUE`, or NAME with the value that it has here; may be repeated")
	s.StringArrayVar(&f.req.Secrets, "secret", nil, "secret for all programs inside, `NAME` or VARIABLE=NAME; may be repeated")
	s.StringVar(&f.req.Snapshot, "snapshot", "", "begin as this snapshot or template, by its id or name")
	s.StringVar(&f.req.Template, "template", "", "begin as this template, by its name; --image takes the name, too")
	s.BoolVar(&f.req.FilesOnly, "files-only", false, "take only the files of the snapshot")
	s.BoolVar(&f.req.KeepAlive, "keep-alive", false, "never sleep")
	s.Var(sleepAfter{positiveDuration{(*duration)(&f.sleepAfter)}}, "sleep-after", "sleep after this time without use (default: the server's, 10m)")
	s.StringVar(&f.onIdle, "on-idle", "", "what happens then: hibernate, stop or destroy (default hibernate)")
	positiveDurationVar(s, &f.lifetime, "lifetime", "", 0, "destroy it this long after its creation, such as 12h or 30d (default never)")
}

// request returns the request that the flags describe. It reads their hidden values from the standard input.
func (f *createFlags) request(ctx context.Context, std streams, args []string) (hutch.CreateRequest, error) {
	env, err := environment(f.env)
	if err != nil {
		return hutch.CreateRequest{}, err
	}
	if err := f.hidden.read(ctx, std); err != nil {
		return hutch.CreateRequest{}, err
	}
	req := f.placement.request("")
	if req.Network.Headers, err = f.hidden.changeHeaders(nil, nil); err != nil {
		return req, err
	}
	req.Network = f.hidden.setProxy(req.Network)
	if len(args) > 0 {
		req.ID = args[0]
	}
	req.User = f.req.User
	req.Env, req.Secrets, req.Snapshot, req.FilesOnly = env, f.req.Secrets, f.req.Snapshot, f.req.FilesOnly
	req.Template = f.req.Template
	req.KeepAlive, req.OnIdle = f.req.KeepAlive, hutch.IdleAction(f.onIdle)
	req.SleepAfter, req.Timeout = hutch.InSeconds(f.sleepAfter), hutch.InSeconds(f.lifetime)
	return req, nil
}

func newInspect(h *home, std streams) *cobra.Command {
	return alwaysJSON(&cobra.Command{
		Use: "inspect SANDBOX...", Aliases: []string{"info", "show"}, Short: "Print everything about sandboxes, as JSON",
		Long: "Print everything about sandboxes, as a JSON array.\n" + remoteHelp, Args: cobra.MinimumNArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			return printRecords(ctx, std, args, svc.Sandbox)
		}),
	})
}

// printRecords prints the records of things, by their names, as a JSON array.
func printRecords[T any](ctx context.Context, std streams, names []string, read func(context.Context, string) (T, error)) error {
	list := make([]T, 0, len(names))
	for _, name := range names {
		record, err := read(ctx, name)
		if err != nil {
			return err
		}
		list = append(list, record)
	}
	return writeJSON(std.out, list)
}
