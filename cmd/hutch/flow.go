package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
	"hutch/internal/flow"
	"hutch/internal/text"
)

func newFlow(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "flow", Short: "Run workflows: steps in sandboxes, with files passed between them",
		Long: `Run workflows. A workflow is a YAML file with steps; each is a command in a sandbox of
its own. Runs are recorded in the data folder. See docs/flows.md.
` + remoteHelp,
		Example: `  hutch flow run build.yaml --save results
  hutch flow ls
  hutch flow run --resume flow-k3f9q2mzx7ap`,
	}
	c.AddCommand(newFlowRun(h, std), newFlowList(h, std), newFlowLogs(h, std), newFlowRemove(h, std))
	return c
}

// flows returns the folder of runs, in the data folder.
func (h *home) flows() (flow.Store, error) {
	if err := h.open(); err != nil {
		return flow.Store{}, err
	}
	dir, err := h.data().Make("flows")
	return flow.Store{Dir: dir}, err
}

func newFlowRun(h *home, std streams) *cobra.Command {
	var resume, save string
	var asJSON, quiet bool
	c := &cobra.Command{
		Use: "run [flags] FILE", Short: "Run a workflow file, or resume a run",
		Long: `Run a workflow file, and print what its steps print. The exit code is 0 when all steps
are done, and 1 when one has failed.

With --resume, continue a run that was interrupted or has failed: steps that are done
do not run again, and steps that still run in their sandboxes are followed.
` + remoteHelp,
		Example: `  hutch flow run build.yaml
  hutch flow run --save results build.yaml
  hutch flow run --resume flow-k3f9q2mzx7ap`,
		Args: cobra.MaximumNArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			if (resume == "") != (len(args) == 1) {
				return usageError{errors.New("give a workflow file, or a run with --resume")}
			}
			store, err := h.flows()
			if err != nil {
				return err
			}
			var run *flow.Run
			if resume != "" {
				run, err = store.Open(resume)
			} else {
				run, err = store.New(args[0])
			}
			if err != nil {
				return err
			}
			defer run.Close()
			show := &stepPrinter{std: std}
			return runFlow(ctx, svc, run, show.watcher(asJSON || quiet), save, asJSON, std)
		}),
	}
	f := c.Flags()
	f.StringVar(&resume, "resume", "", "continue this `RUN`")
	f.StringVar(&save, "save", "", "copy the outputs of each step to a folder of its name in this folder")
	f.BoolVarP(&quiet, "quiet", "q", false, "print only what failed")
	f.BoolVar(&asJSON, "json", false, "print the state of the run as JSON at the end, instead of output as it comes")
	return c
}

// runFlow runs a run, and says how it ended.
func runFlow(ctx context.Context, svc hutch.Service, run *flow.Run, watch flow.Watcher, save string, asJSON bool, std streams) error {
	id := run.State().ID
	fmt.Fprintf(std.err, "hutch: run %s\n", id)
	if err := run.Run(ctx, svc, watch); err != nil {
		fmt.Fprintf(std.err, "hutch: the run %s was interrupted: continue it with `hutch flow run --resume %[1]s`\n", id)
		return err
	}
	state := run.State()
	if save != "" {
		if err := run.Save(ctx, save); err != nil {
			return err
		}
	}
	if asJSON {
		if err := writeJSON(std.out, state); err != nil {
			return err
		}
	}
	if state.Status == flow.Done {
		return nil
	}
	fmt.Fprintf(std.err, "hutch: the run %s failed: %s. See `hutch flow logs %[1]s`; try the failed steps again with `hutch flow run --resume %[1]s`\n", id, text.Line(state.Problem))
	return exitCode(1)
}

// stepPrinter prints the events and the output of steps, with the name of the step before each line.
type stepPrinter struct {
	std streams

	mu   sync.Mutex
	rest map[string][]byte // unfinished lines
}

// watcher returns the printer as a run's watcher; a quiet one prints nothing.
func (p *stepPrinter) watcher(quiet bool) flow.Watcher {
	if quiet {
		return flow.Watcher{}
	}
	return flow.Watcher{Say: p.say, Output: p.output}
}

func (p *stepPrinter) say(step, what string) {
	p.flush(step)
	fmt.Fprintf(p.std.err, "%s: %s\n", step, text.Line(what))
}

func (p *stepPrinter) output(step string, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	data = append(p.rest[step], data...)
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 && len(data) < longLine {
			break
		}
		if i < 0 {
			i = longLine - 1
		}
		p.line(step, data[:i+1])
		data = data[i+1:]
	}
	if p.rest == nil {
		p.rest = map[string][]byte{}
	}
	p.rest[step] = bytes.Clone(data)
}

// flush prints an unfinished line.
func (p *stepPrinter) flush(step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.rest[step]) > 0 {
		p.line(step, p.rest[step])
		delete(p.rest, step)
	}
}

func (p *stepPrinter) line(step string, b []byte) {
	fmt.Fprintf(p.std.out, "%s | %s\n", step, text.Line(string(bytes.TrimRight(b, "\r\n"))))
}

// longLine is the length in bytes at which a line of a step's output is broken.
const longLine = 64 << 10

func newFlowList(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ls [RUN]", Aliases: []string{"list"}, Short: "List runs, or the steps of a run", Args: cobra.MaximumNArgs(1),
		Long: "List the runs of workflows that this machine recorded, or the steps of one.",
		RunE: func(_ *cobra.Command, args []string) error {
			store, err := h.flows()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				list, err := store.List()
				if err != nil {
					return err
				}
				return writeList(std.out, asJSON, list, "RUN\tWORKFLOW\tSTATUS\tSTEPS\tSTARTED\tPROBLEM", flowRow)
			}
			state, err := store.State(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(std.out, state)
			}
			return writeList(std.out, false, state.Steps, "STEP\tSTATUS\tATTEMPT\tTOOK\tPROBLEM", func(s flow.Record) []any {
				took := ""
				if !s.Ended.IsZero() {
					took = s.Ended.Sub(s.Started).Round(100e6).String()
				}
				return []any{s.Name, s.Status, s.Attempt, dash(took), dash(s.Problem)}
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func flowRow(s flow.State) []any {
	done := 0
	for _, step := range s.Steps {
		if step.Status == flow.Done {
			done++
		}
	}
	return []any{s.ID, s.Name, s.Status, fmt.Sprintf("%d/%d", done, len(s.Steps)), when(&s.Started, ""), dash(s.Problem)}
}

func newFlowLogs(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "logs RUN [STEP]", Short: "Print what the steps of a run printed", Args: cobra.RangeArgs(1, 2),
		Long: "Print what the steps of a run printed, with the name of the step before each line, or\nwhat one step printed, as it is.",
		RunE: func(_ *cobra.Command, args []string) error {
			store, err := h.flows()
			if err != nil {
				return err
			}
			state, err := store.State(args[0])
			if err != nil {
				return err
			}
			steps, err := chosenSteps(state, args[1:])
			if err != nil {
				return err
			}
			return printLogs(std, store, state.ID, steps, len(args) == 2, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON: an object of step and output for each step")
	return c
}

// chosenSteps returns the steps of a run that have started, or the named one.
func chosenSteps(state flow.State, name []string) (steps []string, err error) {
	for _, s := range state.Steps {
		if len(name) == 0 || name[0] == s.Name {
			steps = append(steps, s.Name)
		}
	}
	if len(steps) == 0 {
		return nil, hutch.Errorf(hutch.NotFound, "the run %s has no step %q: see `hutch flow ls %[1]s`", state.ID, name[0])
	}
	return steps, nil
}

// printLogs prints the output of steps: raw, as JSON, or with the name of the step before each line.
func printLogs(std streams, store flow.Store, id string, steps []string, raw, asJSON bool) error {
	show := &stepPrinter{std: std}
	for _, step := range steps {
		f, err := os.Open(store.Log(id, step))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		switch {
		case asJSON:
			var b strings.Builder
			if _, err = io.Copy(&b, f); err == nil {
				err = writeJSON(std.out, done{"step": step, "output": b.String()})
			}
		case raw:
			_, err = io.Copy(std.out, f)
		default:
			_, err = io.Copy(stepWriter{step, show}, f)
			show.flush(step)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// stepWriter prints the output of a step.
type stepWriter struct {
	step string
	show *stepPrinter
}

func (w stepWriter) Write(b []byte) (int, error) {
	w.show.output(w.step, b)
	return len(b), nil
}

func newFlowRemove(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "rm RUN...", Short: "Remove runs: their records, outputs and sandboxes", Args: cobra.MinimumNArgs(1),
		Long: "Remove runs: their records and outputs on this machine, and the sandboxes of their steps\non the server.\n" + remoteHelp,
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			store, err := h.flows()
			if err != nil {
				return err
			}
			for _, id := range args {
				if err := store.Remove(ctx, svc, id); err != nil {
					return err
				}
			}
			return writeList(std.out, asJSON, args, "", func(id string) []any { return []any{id} })
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
