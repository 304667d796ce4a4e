package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
)

func newTimeline(h *home, std streams) *cobra.Command {
	var q hutch.TimelineQuery
	var since, until string
	var kinds []string
	var asJSON bool
	c := &cobra.Command{
		Use: "timeline SANDBOX", Short: "Show what happened in a sandbox, in order",
		Long: `Show what happened in a sandbox, in order: commands and code, files that were
written, what the network allowed and denied, snapshots, sleep and waking, and
how it ended. Each line has its number, and who did it through which door.

It wakes no sandbox, and works for one that was destroyed, as long as the server
keeps its audit log. Only the owner of a sandbox can see its timeline.
` + remoteHelp,
		Example: "  hutch timeline build --kind command,network\n  hutch timeline build --since 2h --text pip\n  hutch timeline build --follow",
		Args:    cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) (err error) {
			now := time.Now()
			if q.Since, err = instant(since, now); err != nil {
				return err
			}
			if q.Until, err = instant(until, now); err != nil {
				return err
			}
			for _, k := range kinds {
				q.Kinds = append(q.Kinds, hutch.TimelineKind(k))
			}
			show := showEntry(std.out)
			if asJSON {
				enc := json.NewEncoder(std.out)
				show = func(e hutch.TimelineEntry) error { return enc.Encode(e) }
			}
			return svc.Timeline(ctx, args[0], q, show)
		}),
	}
	f := c.Flags()
	f.StringSliceVar(&kinds, "kind", nil, "only these: life, command, code, file, git, network, port, snapshot, share, question")
	f.StringVar(&since, "since", "", "only what began since then: an age such as 2h, or a time")
	f.StringVar(&until, "until", "", "only what began before then")
	f.StringVar(&q.Text, "text", "", "only what contains this text")
	f.Int64Var(&q.ID, "id", 0, "only the entry of that number")
	f.Int64Var(&q.After, "after", 0, "only what comes after that cursor")
	f.IntVarP(&q.Limit, "limit", "n", 0, "most entries to print, the newest (default 100)")
	f.BoolVarP(&q.Follow, "follow", "f", false, "continue with what happens from now on")
	f.BoolVar(&asJSON, "json", false, "print lines of JSON")
	return c
}

// showEntry prints entries as lines for people. Text of callers and programs is quoted if a terminal could interpret it.
func showEntry(w io.Writer) func(hutch.TimelineEntry) error {
	return func(e hutch.TimelineEntry) error {
		line := fmt.Sprintf("%6d  %s  %-8s %-13s %-11s %s", e.ID, e.Time.Local().Format("2006-01-02 15:04:05"), printable(string(e.Kind)), printable(e.Event), outcomeOf(e), printable(e.Target))
		for _, note := range notesOf(e) {
			line += "  (" + printable(note) + ")"
		}
		_, err := fmt.Fprintln(w, strings.TrimRight(line, " "))
		return err
	}
}

// outcomeOf returns in one word how an entry ended.
func outcomeOf(e hutch.TimelineEntry) string {
	switch {
	case e.Limit != "":
		return printable(e.Limit) + " limit"
	case e.ExitCode != nil && *e.ExitCode != 0:
		return fmt.Sprint("exit ", *e.ExitCode)
	}
	return printable(e.Result)
}

func notesOf(e hutch.TimelineEntry) (notes []string) {
	add := func(format, value string) {
		if value != "" {
			notes = append(notes, fmt.Sprintf(format, value))
		}
	}
	add("%s", e.Error)
	add("snapshot %s", e.Snapshot)
	add("sandbox %s", strings.Join(e.Sandboxes, " "))
	add("process %s", e.Process)
	if e.Skipped > 0 && e.Event != "Skipped" {
		add("%s", fmt.Sprintf("%d more before this were left out", e.Skipped))
	}
	if door := strings.Trim(cmp.Or(e.TokenName, e.Token)+" by "+e.Surface, " "); e.Surface != "" {
		add("%s", strings.TrimPrefix(door, "by "))
	}
	return notes
}
