package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
	"hutch/internal/text"
)

// hutch top follows the use of sandboxes (hutch.Accounts.Stats): topView has the data and its form, topScreen is the
// terminal.

func newTop(h *home, std streams) *cobra.Command {
	var once, asJSON bool
	var order string
	var interval time.Duration
	c := &cobra.Command{
		Use: "top [flags]", Short: "Show what sandboxes use, live",
		Long: `Show what sandboxes use, live: CPU, memory, disk, network, processes, state, age and, if the server
has prices, cost. It wakes no sandbox and keeps none awake. An administrator sees all, another what is
its own. On gvisor the memory has the sandbox's own kernel in it, and can be 64 MiB above the limit.

Keys: c m d n p a s t $ sort by CPU, memory, disk, network, processes, age, sandbox, state and cost; r
reverses; the arrows choose a sandbox and Return shows its processes, and then the logs of one; q goes
back and ends. Reading logs is a use of the sandbox: it stays awake meanwhile.

With --once, or when the output is not a terminal, it prints one table. --json prints a report as a line
whenever something changes, and with --once a list of the sandboxes.
` + remoteHelp,
		Example: `  hutch top --sort memory
  hutch top --once --json | jq '.[] | select(.cpu > 50) | .sandboxId'`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.BoolVar(&once, "once", false, "print what sandboxes use now, and end")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.StringVar(&order, "sort", "cpu", "what to sort by: "+strings.Join(topNames(), ", "))
	positiveDurationVar(f, &interval, "interval", "", 0, "time between two readings, default 2s; at least 0.5s")
	c.RunE = onServer(h, func(ctx context.Context, svc *client.Client, _ []string) error {
		v := newTopView()
		if !v.sortBy(order) {
			return usageError{fmt.Errorf("--sort: there is no column %q: use %s", order, strings.Join(topNames(), ", "))}
		}
		req := hutch.StatsRequest{Follow: true, Interval: hutch.InSeconds(interval)}
		if err := req.Check(); err != nil {
			return err
		}
		out, isFile := std.out.(*os.File)
		atTerminal := isFile && isTerminal(out) && isTerminal(std.in)
		switch {
		case asJSON && !once:
			return streamStats(ctx, svc, req, std.out)
		case once || !atTerminal:
			return printStats(ctx, svc, v, asJSON, std.out)
		}
		return (&topScreen{svc: svc, view: v, in: std.in, out: out}).run(ctx, req)
	})
	return c
}

// streamStats prints each report as a line of JSON.
func streamStats(ctx context.Context, svc hutch.Accounts, req hutch.StatsRequest, w io.Writer) error {
	return svc.Stats(ctx, req, func(r hutch.StatsReport) error {
		line, err := json.Marshal(r)
		if err == nil {
			_, err = fmt.Fprintln(w, text.JSON(string(line)))
		}
		return err
	})
}

// CPU and network are differences between two readings, so a table that is printed once waits for the second reading.
// The wait is limited, because no second reading arrives when nothing changes.
const (
	onceInterval = 0.5
	onceWait     = time.Second
)

// printStats prints one table, or a list as JSON.
func printStats(ctx context.Context, svc hutch.Accounts, v *topView, asJSON bool, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	enough := errors.New("enough")
	reports := 0
	err := svc.Stats(ctx, hutch.StatsRequest{Follow: true, Interval: onceInterval}, func(r hutch.StatsReport) error {
		v.apply(r)
		if r.Partial { // no second reading
			return nil
		}
		if reports++; reports == 2 {
			return enough
		}
		time.AfterFunc(onceWait, cancel)
		return nil
	})
	if err != nil && err != enough && (reports == 0 || !errors.Is(err, context.Canceled)) {
		return err
	}
	rows := v.sorted()
	if asJSON {
		list := make([]hutch.Stats, len(rows))
		for i, r := range rows {
			list[i] = r.Stats
		}
		return writeJSON(w, list)
	}
	return v.print(w, rows)
}

// print writes the table without a limit of its width.
func (v *topView) print(w io.Writer, rows []*topRow) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(cell func(topColumn) string) {
		var cells []string
		for _, c := range v.columns(math.MaxInt) {
			cells = append(cells, text.Line(cell(c)))
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	line(func(c topColumn) string { return c.title })
	for _, r := range rows {
		line(func(c topColumn) string { return c.text(v, r) })
	}
	return t.Flush()
}

// topNames returns the columns by which rows can be sorted.
func topNames() []string {
	var names []string
	for _, c := range topColumns {
		names = append(names, c.name)
	}
	slices.Sort(names)
	return names
}
