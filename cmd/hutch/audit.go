package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
	"hutch/internal/audit"
	"hutch/internal/datadir"
)

func newAudit(h *home, std streams) *cobra.Command {
	var q client.AuditQuery
	var since, until string
	var asJSON, follow bool
	c := &cobra.Command{
		Use: "audit", Short: "Show what was done on the server, and by whom",
		Long: `Show what was done on the server, and by whom: of the last day, if --since does
not say otherwise. Times are an age such as 2h, a day such as 2026-01-31, or
like 2026-01-31T15:04:05Z. It needs a token with the scope admin.
` + remoteHelp,
		Example: "  hutch audit --since 2h --verb exec\n  hutch audit --sandbox build --result denied\n  hutch audit --since 2026-01-01 --json > audit.jsonl\n  hutch audit --follow",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			now := time.Now()
			if q.Since, err = instant(since, now); err != nil {
				return err
			}
			if q.Until, err = instant(until, now); err != nil {
				return err
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			show := showRecord(std.out)
			if asJSON {
				enc := json.NewEncoder(std.out)
				show = func(r client.AuditRecord) error { return enc.Encode(r) }
			}
			return svc.Audit(c.Context(), q, follow, show)
		},
	}
	f := c.Flags()
	f.StringVar(&since, "since", "24h", "only what began since then")
	f.StringVar(&until, "until", "", "only what began before then")
	f.StringVar(&q.Token, "token", "", "only of the token of that name or id")
	f.StringVar(&q.Owner, "owner", "", "only of that owner")
	f.StringVar(&q.Sandbox, "sandbox", "", "only about that sandbox")
	f.StringVar(&q.Verb, "verb", "", "only that verb, such as exec or writeFile")
	f.StringVar(&q.Result, "result", "", "only with that result: ok, denied, not_found, interrupted ...")
	f.IntVarP(&q.Limit, "limit", "n", 0, "most entries to print")
	f.BoolVar(&q.Running, "running", false, "what is under way, in place of what has ended")
	f.BoolVar(&asJSON, "json", false, "print lines of JSON")
	f.BoolVarP(&follow, "follow", "f", false, "keep printing new operations")
	c.AddCommand(newAuditVerify(h, std))
	return c
}

// instant reads a time, or how long ago it was.
func instant(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if age, err := parseDuration(s); err == nil {
		return now.Add(-age), nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usageError{fmt.Errorf("%q is not a time: give an age such as 2h, a day such as 2026-01-31, or a time like 2026-01-31T15:04:05Z", s)}
}

// showRecord prints records as lines for people. Text from callers is quoted if a terminal could interpret it.
func showRecord(w io.Writer) func(client.AuditRecord) error {
	return func(r client.AuditRecord) error {
		who := r.TokenName
		if who == "" {
			who = "-"
		}
		line := fmt.Sprintf("%s  %-12s %-14s %-11s %8s  %s %s", r.Time.Local().Format("2006-01-02 15:04:05.000"), printable(who), printable(r.Verb),
			printable(r.Result), r.Duration.Round(10*time.Microsecond), printable(r.Sandbox), printable(r.Target))
		if r.Error != "" {
			line += "  (" + printable(r.Error) + ")"
		}
		_, err := fmt.Fprintln(w, strings.TrimRight(line, " "))
		return err
	}
}

// printable returns s, in quotes and escaped if it has characters that cannot be printed.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.QuoteToASCII(s)
	}
	return s
}

func newAuditVerify(h *home, std streams) *cobra.Command {
	var head string
	var asJSON bool
	c := &cobra.Command{
		Use: "verify [FOLDER]", Short: "Check that the audit log is unchanged",
		Long: `Look whether the audit log in the data folder, or in a folder, is as it was
written: no line changed, taken out, put in or moved. The server may be running.

What is printed as head names the last line. Keep it elsewhere and give it back
later with --head: then not even a person who can write to the folder can have
put another log in its place.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := h.auditDir(args)
			if err != nil {
				return err
			}
			report, err := audit.Verify(c.Context(), dir, head)
			if err != nil {
				return err
			}
			if report.Lines == 0 && report.OK() {
				return hutch.Errorf(hutch.NotFound, "there is no audit log in %s: choose the server's data folder with --data or $HUTCH_DATA; if this is the folder, the log was removed", dir)
			}
			if asJSON {
				err = writeJSON(std.out, report)
			} else {
				err = writeReport(std.out, report)
			}
			if err == nil && !report.OK() {
				return hutch.Errorf(hutch.Conflict, "the audit log in %s is not as it was written", dir)
			}
			return err
		},
	}
	c.Flags().StringVar(&head, "head", "", "a head that was printed earlier, which the log must still have")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// auditDir returns the folder to verify. A folder without a log is an error: it can be the wrong one, or the log was
// removed.
func (h *home) auditDir(args []string) (string, error) {
	dir := ""
	if len(args) == 1 {
		dir = args[0]
	} else {
		data, err := h.path()
		if err != nil {
			return "", err
		}
		dir = datadir.AuditLog(filepath.Join(data, datadir.Server))
	}
	if _, err := os.ReadDir(dir); err != nil {
		return "", hutch.Errorf(hutch.NotFound, "there is no audit log in %s: choose the server's data folder with --data or $HUTCH_DATA, or name the folder of the log", dir).Because(err)
	}
	return dir, nil
}

func writeReport(w io.Writer, r audit.Report) error {
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s:%d: %s\n", f.File, f.Line, f.What)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	_, err := fmt.Fprintf(w, "%d lines, %d to %d\nhead %d:%s\n", r.Lines, r.First, r.Last, r.Last, r.Head)
	return err
}

func newUsage(h *home, std streams) *cobra.Command {
	var asJSON bool
	var from, to string
	var by []string
	c := &cobra.Command{
		Use: "usage [SANDBOX]", Short: "Show what sandboxes have used",
		Long: `Show what sandboxes have used, and the sum of each owner, which counts what was
destroyed too. The cost is by the prices that the server was given. An
administrator sees all, another what is its own.

With --by, --from or --to, show sums of past days instead: the last 30 unless you
choose others. Days are in UTC, and are kept for 400 days.
` + remoteHelp,
		Example: `  hutch usage
  hutch usage --by day,image --from 2026-11-01`,
		Args: cobra.MaximumNArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			if len(by) > 0 || from != "" || to != "" {
				if len(args) > 0 {
					return usageError{errors.New("the use of past days is kept by owner and image, not by sandbox: leave out the sandbox, or --by, --from and --to")}
				}
				q := hutch.UsageQuery{From: from, To: to}
				for _, g := range by {
					q.By = append(q.By, hutch.UsageGroup(g))
				}
				return showUsageHistory(ctx, svc, q, asJSON, std.out)
			}
			report, err := svc.Usage(ctx)
			if err == nil && len(args) == 1 {
				report, err = ofSandbox(report, args[0])
			}
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(std.out, report)
			}
			return writeUsage(std.out, report)
		}),
	}
	f := c.Flags()
	f.StringSliceVar(&by, "by", nil, "sums for each day, owner, image, or several of them: day,image")
	f.StringVar(&from, "from", "", "the first day, such as 2026-11-01")
	f.StringVar(&to, "to", "", "the last day; default today")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func showUsageHistory(ctx context.Context, svc *client.Client, q hutch.UsageQuery, asJSON bool, w io.Writer) error {
	list, err := svc.UsageHistory(ctx, q)
	switch {
	case err != nil:
		return err
	case asJSON:
		return writeJSON(w, list)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DAY\tOWNER\tIMAGE\tCPU\tMEMORY·TIME\tPEAK\tSENT\tRECEIVED\tRUNS\tTIME\tCOST")
	for _, u := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", cmp.Or(u.Day, "-"), cmp.Or(u.Owner, "-"), printable(cmp.Or(u.Image, "-")), computeCells(u), otherCells(u))
	}
	return t.Flush()
}

// computeCells returns the columns from CPU to PEAK.
func computeCells(u hutch.Usage) string {
	return fmt.Sprintf("%.2f s\t%.1f GiB·s\t%.0f MiB", u.CPUSeconds, u.MemorySeconds, u.MemoryPeak)
}

// otherCells returns the columns from SENT to COST.
func otherCells(u hutch.Usage) string {
	return fmt.Sprintf("%.1f MiB\t%.1f MiB\t%d\t%v\t%.4f", float64(u.NetworkSent)/(1<<20), float64(u.NetworkReceived)/(1<<20), u.Executions, u.WallTime.Duration().Round(time.Second), u.Cost)
}

func ofSandbox(all hutch.UsageReport, id string) (hutch.UsageReport, error) {
	some := hutch.UsageReport{Owners: []hutch.Usage{}}
	for _, u := range all.Sandboxes {
		if u.SandboxID == id {
			some.Sandboxes = append(some.Sandboxes, u)
		}
	}
	if len(some.Sandboxes) == 0 {
		return some, hutch.Errorf(hutch.NotFound, "there is no sandbox %.80q: `hutch usage` lists all", id)
	}
	return some, nil
}

func writeUsage(w io.Writer, r hutch.UsageReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SANDBOX\tOWNER\tSTATUS\tCPU\tMEMORY·TIME\tPEAK\tDISK\tSENT\tRECEIVED\tRUNS\tTIME\tCOST")
	row := func(name string, u hutch.Usage) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.0f MiB\t%s\n", name, u.Owner, u.Status, computeCells(u), u.Disk, otherCells(u))
	}
	for _, u := range r.Sandboxes {
		row(u.SandboxID, u)
	}
	for _, u := range r.Owners {
		row("(all)", u)
	}
	return t.Flush()
}
