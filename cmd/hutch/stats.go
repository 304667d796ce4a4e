package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
)

func newStats(h *home, std streams) *cobra.Command {
	var since, until string
	var step time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use: "stats SANDBOX", Short: "Show what a sandbox used over time",
		Long: `Show what a sandbox used over time: CPU, memory, disk, and bytes per second sent and
received, on average from each moment until the next. The server takes a sample
every 5 seconds, and with the age of the sandbox fewer. While the sandbox sleeps it
has none. It wakes no sandbox. To see what sandboxes use now, use ` + "`hutch top`" + `.
` + remoteHelp,
		Example: "  hutch stats build\n  hutch stats build --since 2h --step 5m\n  hutch stats build --since 7d --json",
		Args:    cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) (err error) {
			q := hutch.StatsQuery{Step: hutch.InSeconds(step)}
			now := time.Now()
			if q.Since, err = instant(since, now); err != nil {
				return err
			}
			if q.Until, err = instant(until, now); err != nil {
				return err
			}
			past, err := svc.StatsHistory(ctx, args[0], q)
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(std.out, past)
			case len(past.Samples) == 0:
				_, err = fmt.Fprintln(std.err, "there are no samples: the sandbox did not run in that time, or began to run only now")
				return err
			}
			return writeSamples(std.out, past)
		}),
	}
	f := c.Flags()
	f.StringVar(&since, "since", "15m", "from when on: an age such as 2h, or a time")
	f.StringVar(&until, "until", "", "until when; default now")
	positiveDurationVar(f, &step, "step", "", 30*time.Second, "shortest time between two lines; the server can have only longer ones")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func writeSamples(w io.Writer, past hutch.StatsHistory) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TIME\tCPU\tMEMORY\tDISK\tSENT/S\tRECEIVED/S")
	for _, s := range past.Samples {
		fmt.Fprintf(t, "%s\t%.1f%%\t%.1f MiB\t%.1f MiB\t%.1f KiB\t%.1f KiB\n", s.Time.Local().Format(time.DateTime), s.CPU, s.Memory, s.Disk, s.SendRate/1024, s.ReceiveRate/1024)
	}
	return t.Flush()
}
