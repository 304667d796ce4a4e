package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hutch"
	"hutch/client"
)

func newUpdate(h *home, std streams) *cobra.Command {
	var req hutch.UpdateRequest
	var keepAlive, asJSON bool
	var onIdle string
	var env, unset []string
	var sleepTime, lifetime time.Duration
	c := &cobra.Command{
		Use: "update [flags] SANDBOX", Short: "Change how long a sandbox stays, its variables and its labels",
		Long: `Change how long an existing sandbox stays, its environment variables and its labels. What no
flag names stays as it is; a sandbox that sleeps is not woken. Programs that run already keep the
variables that they have.
` + remoteHelp,
		Example: `  hutch update --keep-alive web
  hutch update --keep-alive=false --sleep-after 1h --lifetime 2d web
  hutch update -e MODE=test --unset-env DEBUG web`,
		Args: cobra.ExactArgs(1),
	}
	f := c.Flags()
	f.BoolVar(&keepAlive, "keep-alive", false, "never sleep; --keep-alive=false ends that")
	f.Var(sleepAfter{(*duration)(&sleepTime)}, "sleep-after", "sleep after this time without use, 0 for the server's default; to never sleep, use --keep-alive")
	f.StringVar(&onIdle, "on-idle", "", "what happens then: hibernate, stop or destroy")
	durationVar(f, &lifetime, "lifetime", "", 0, "destroy it this long after now, 0 for never")
	f.StringToStringVar(&req.Labels, "label", nil, "labels in place of all it has, `KEY=VALUE`; may be repeated")
	f.StringArrayVarP(&env, "env", "e", nil, "set an environment variable, `NAME=VALUE`, or NAME with the value that it has here; may be repeated")
	f.StringArrayVar(&unset, "unset-env", nil, "remove the environment variable `NAME`; may be repeated")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
		changes := false
		c.LocalNonPersistentFlags().VisitAll(func(fl *pflag.Flag) { changes = changes || fl.Changed && fl.Name != "json" })
		if !changes {
			return usageError{errors.New("nothing to change: give a flag, such as --keep-alive, --sleep-after, --lifetime, --label or --env; see `hutch update --help`")}
		}
		if f.Changed("keep-alive") {
			req.KeepAlive = &keepAlive
		}
		if f.Changed("sleep-after") {
			req.SleepAfter = new(hutch.InSeconds(sleepTime))
		}
		if f.Changed("lifetime") {
			req.Timeout = new(hutch.InSeconds(lifetime))
		}
		set, err := environment(env)
		if err != nil {
			return err
		}
		req.Env = envChanges(set, unset)
		req.OnIdle = hutch.IdleAction(onIdle)
		sb, err := svc.Update(ctx, args[0], req)
		return printMade(std, sb.ID, sb, asJSON, err)
	})
	return c
}

// envChanges returns the variables to set, and those to remove.
func envChanges(set map[string]string, unset []string) map[string]*string {
	changes := make(map[string]*string, len(set)+len(unset))
	for name, value := range set {
		changes[name] = &value
	}
	for _, name := range unset {
		changes[name] = nil
	}
	return changes
}
