package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
	"hutch/internal/text"
)

// onServer is the RunE of a command that needs a client.
func onServer(h *home, run func(ctx context.Context, svc *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		svc, err := h.dial()
		if err != nil {
			return err
		}
		return run(c.Context(), svc, args)
	}
}

const remoteHelp = `
The server is $HUTCH_URL, or the one of ` + "`hutch login`" + `, or the one on this machine.`

func newExec(h *home, std streams) *cobra.Command {
	var j job
	var p placement
	var m maker
	var session string
	var tty bool
	c := &cobra.Command{
		Use:   "exec [flags] SANDBOX [COMMAND [ARG...] | FILE [ARG...]]",
		Short: "Run a command or a source file in a sandbox of the server",
		Long: `Run a command or a source file in the sandbox of that id, which is made if there
is none. Input, output and exit code are passed through; Hutch's own failures
are exit code 125. Without --timeout the time limit is 30 s, or what the server
says; at a terminal there is none.

Flags that say how to make the sandbox (--runtime, --network, --memory ...) must
fit a sandbox that exists: the command is refused when they do not.
` + remoteHelp,
		Example: `  hutch exec demo 'cat > data.csv' < data.csv
  hutch exec -l python demo sum.py
  hutch exec --timeout 5m demo make test
  hutch exec -it demo vim notes.txt`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			req, err := j.request(c, args[1:], std.in)
			if err != nil {
				return err
			}
			req.SessionID = session
			if err := req.Check(); err != nil { // before a sandbox is created for the command
				return err
			}
			j.unlimited = j.timeout == 0 && (isTerminal(std.in) || showsTerminal(std.out))
			svc, err := h.dial()
			if err != nil {
				return err
			}
			if tty {
				return j.inTerminal(c.Context(), svc, m, p.request(args[0]), req, std)
			}
			if err := m.ensure(c.Context(), svc, p.request(args[0]), std); err != nil {
				return err
			}
			return j.execute(c.Context(), svc, args[0], req, std)
		},
	}
	j.flags(c)
	p.flags(c)
	m.flags(c)
	c.Flags().BoolVar(&tty, "tty", false, "give the command a terminal, as hutch shell does; also -it")
	c.Flags().StringVarP(&session, "session", "s", "", "run it in the session of that name, which keeps its folder, variables and functions")
	return c
}

func newList(h *home, std streams) *cobra.Command {
	var asJSON, quiet bool
	var f hutch.Filter
	c := &cobra.Command{
		Use: "ls [SANDBOX]", Aliases: []string{"list"}, Short: "List the server's sandboxes", Long: "List the server's sandboxes, or show one.\n" + remoteHelp,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && (f.Status != "" || len(f.Labels) > 0) {
				return usageError{errors.New("give the id of a sandbox, or a filter")}
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			list, err := listed(c.Context(), svc, args, f)
			switch {
			case err != nil:
				return err
			case quiet && !asJSON:
				return writeList(std.out, false, list, "", func(s hutch.Sandbox) []any { return []any{s.ID} })
			}
			return writeList(std.out, asJSON, list, "SANDBOX\tSTATUS\tRUNTIME\tUPTIME\tCPU\tMEMORY\tPROCESSES", sandboxRow)
		},
	}
	c.Flags().StringToStringVar(&f.Labels, "label", nil, "only those with this label, `NAME=VALUE`; may be repeated")
	c.Flags().StringVar((*string)(&f.Status), "status", "", "only those with this status: running, paused, hibernated, stopped or error")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the ids only")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// listed returns the sandboxes of a filter, or the named one.
func listed(ctx context.Context, svc hutch.Service, args []string, f hutch.Filter) ([]hutch.Sandbox, error) {
	if len(args) > 0 {
		sb, err := svc.Sandbox(ctx, args[0])
		return []hutch.Sandbox{sb}, err
	}
	return svc.Sandboxes(ctx, f)
}

func writeJSON(w io.Writer, v any) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, text.JSON(b.String()))
	return err
}

// writeList prints a list as JSON or as a table, which has a head unless head is empty.
func writeList[T any](w io.Writer, asJSON bool, list []T, head string, row func(T) []any) error {
	if asJSON {
		return writeJSON(w, append([]T{}, list...)) // never null
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if head != "" {
		fmt.Fprintln(t, head)
	}
	for _, v := range list {
		for i, cell := range row(v) {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, text.Line(fmt.Sprint(cell)))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// removal is a kind of thing that commands remove.
type removal struct {
	noun string
	// names are the ids and names of all things of this kind. It is nil if removing a missing one is an error.
	names  func(context.Context, *client.Client) ([]string, error)
	remove func(*client.Client, context.Context, string) error
}

// onEach is the RunE of a command that removes each thing that its arguments name, and prints their names. A missing
// thing causes a warning.
func (r removal) onEach(h *home, std streams, asJSON *bool) func(*cobra.Command, []string) error {
	return onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
		var names []string
		var err error
		if r.names != nil {
			if names, err = r.names(ctx, svc); err != nil {
				return err
			}
		}
		gone := []string{}
		for _, name := range args {
			if err = r.remove(svc, ctx, name); err != nil && !errors.Is(err, hutch.NotFound) {
				break
			}
			if err == nil && (r.names == nil || slices.Contains(names, name)) {
				gone = append(gone, name)
			} else {
				wasNot(std, r.noun, name, names)
			}
			err = nil
		}
		return errors.Join(err, writeList(std.out, *asJSON, gone, "", func(name string) []any { return []any{name} }))
	})
}

func sandboxRow(s hutch.Sandbox) []any {
	live := 0
	for _, p := range s.Processes {
		if p.Status.Live() {
			live++
		}
	}
	return []any{
		s.ID, s.Status, s.Runtime, s.Uptime.Duration().Round(time.Second),
		fmt.Sprintf("%.0f %%", s.Resources.CPU), fmt.Sprintf("%.0f MiB", s.Resources.Memory), live,
	}
}

func newRemove(h *home, std streams) *cobra.Command {
	var force, all, asJSON bool
	c := &cobra.Command{
		Use: "rm SANDBOX...", Aliases: []string{"destroy", "delete"}, Short: "Destroy sandboxes of the server",
		Long: "Destroy sandboxes of the server, with all that is in them.\n" + goneHelp + remoteHelp,
		RunE: func(c *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usageError{errors.New("give the ids of sandboxes, or --all")}
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			list, err := svc.Sandboxes(c.Context(), hutch.Filter{})
			if err != nil {
				return err
			}
			ids := idsOf(list)
			if all {
				args = ids
			}
			var errs []error
			var gone []hutch.Destruction
			for _, id := range args {
				d, err := svc.Destroy(c.Context(), id, force)
				switch {
				case err != nil:
					errs = append(errs, forceHint(err, id))
				case !slices.Contains(ids, id):
					wasNot(std, "sandbox", id, ids)
				default:
					gone = append(gone, d)
				}
			}
			err = writeList(std.out, asJSON, gone, "", func(d hutch.Destruction) []any { return []any{d.ID} })
			return errors.Join(append(errs, err)...)
		},
	}
	c.Flags().BoolVarP(&force, "force", "f", false, "even with running background processes, and with files of volumes that cannot be saved")
	c.Flags().BoolVar(&all, "all", false, "all of them")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// forceHint adds our command with --force to a server's error that force would avoid.
func forceHint(err error, id string) error {
	if errors.Is(err, hutch.Conflict) || errors.Is(err, hutch.Exhausted) {
		return fmt.Errorf("%w (`hutch rm --force %s`)", err, id)
	}
	return err
}

const goneHelp = `A name that does not exist is a warning, not an error.
`

// wasNot warns that something to remove did not exist: the result is as requested, but the name can be a typo.
func wasNot(std streams, noun, name string, names []string) {
	fmt.Fprintf(std.err, "hutch: warning: there was no %s %s%s\n", noun, text.Line(fmt.Sprintf("%q", name)), similarName(name, names))
}

func idsOf(list []hutch.Sandbox) (ids []string) {
	for _, s := range list {
		ids = append(ids, s.ID)
	}
	return ids
}
