package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
	"hutch/internal/text"
)

// monitored is the output of hutch monitor.
type monitored struct {
	System reportSystem  `json:"system"`
	Health reportHealth  `json:"health"`
	Answer *hutch.Answer `json:"answer,omitempty"`
}

// reportSystem describes the program and the machine.
type reportSystem struct {
	Version string         `json:"version"` // version of this program
	Server  *hutch.Version `json:"server,omitempty"`
	URL     string         `json:"url,omitempty"` // empty without a server
	OS      string         `json:"os"`            // of this machine
	Cores   int            `json:"cores"`
}

// reportHealth is the server's health.
type reportHealth struct {
	Status    string               `json:"status"`              // "healthy" or "no server"
	RoundTrip float64              `json:"roundTrip,omitempty"` // round trip of a request, in ms
	Sandboxes map[hutch.Status]int `json:"sandboxes,omitempty"`
	Memory    float64              `json:"memory"` // memory of all these sandboxes, in MiB
}

func newMonitor(h *home, std streams) *cobra.Command {
	a := asker{quiet: true}
	c := &cobra.Command{
		Use:   "monitor [flags] [QUESTION...]",
		Short: "Report the state of the server, and what it takes to answer a question",
		Long: `Print a report: the system, the health of the server and its sandboxes and, with a
question, how long the model took and how many tokens, how long the program took,
and how much memory and processor time its sandbox used.

The question is answered as by ` + "`hutch ask`" + `, also without a server; the exit code is
the program's. For a live view see ` + "`hutch top`" + `.
` + remoteHelp,
		Example: `  hutch monitor
  hutch monitor "What is the 100th prime number?"
  hutch monitor --no-cache --json "What is the 100th prime number?" | jq .answer.generationTime`,
		RunE: func(c *cobra.Command, args []string) error {
			return monitor(c.Context(), h, &a, args, std)
		},
	}
	q, f := &a.question, c.Flags()
	q.Measure = true
	f.StringVarP(&q.Language, "language", "l", "", "language of the program: python, javascript, typescript, bash, go ... (default python)")
	f.StringVarP(&q.Code, "code", "c", "", "run this program, and ask no model")
	f.BoolVar(&q.NoCache, "no-cache", false, "ask the model even when the program for this question is known")
	f.StringVar(&a.runtime, "runtime", "", "runtime without a server: gvisor, native, docker or kubernetes (default: the first that works)")
	f.BoolVar(&a.asJSON, "json", false, "print JSON")
	a.repairs, a.timeout = -1, 30*time.Second
	return c
}

// monitor prints the report. The program's output is part of it.
func monitor(ctx context.Context, h *home, a *asker, args []string, std streams) error {
	r := monitored{System: reportSystem{Version: fullVersion(), OS: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU()}, Health: reportHealth{Status: "no server"}}
	svc, err := serverThatRuns(h)
	if err == nil && svc != nil {
		err = r.look(ctx, h, svc)
	}
	if err != nil {
		return err
	}
	var exit error
	if len(args) > 0 || a.question.Code != "" {
		q, err := a.request(args, std.in)
		if err != nil {
			return err
		}
		exit = a.run(ctx, h, q, streams{in: std.in, out: io.Discard, err: io.Discard})
		if _, ran := exit.(exitCode); exit != nil && !ran {
			return exit
		}
		r.Answer = &a.answer
	}
	if a.asJSON {
		err = writeJSON(std.out, r)
	} else {
		err = r.print(std.out)
	}
	if err != nil {
		return err
	}
	return exit
}

// look asks the server about its health.
func (r *monitored) look(ctx context.Context, h *home, svc *client.Client) error {
	t, err := h.target()
	if err != nil {
		return err
	}
	began := time.Now()
	v, err := svc.Version(ctx)
	if err != nil {
		return err
	}
	r.System.Server, r.System.URL = &v, t.url
	r.Health = reportHealth{Status: "healthy", RoundTrip: float64(time.Since(began).Microseconds()) / 1000, Sandboxes: map[hutch.Status]int{}}
	return svc.Stats(ctx, hutch.StatsRequest{}, func(s hutch.StatsReport) error {
		for _, box := range s.Sandboxes {
			r.Health.Sandboxes[box.Status]++
			r.Health.Memory += box.Memory
		}
		return nil
	})
}

// print writes the report for people.
func (r *monitored) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(title, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", title, text.Line(fmt.Sprintf(format, args...)))
	}
	row("System", "hutch %s, %s, %d cores", r.System.Version, r.System.OS, r.System.Cores)
	if s := r.System.Server; s != nil {
		row("Server", "%s at %s", versionText(*s), r.System.URL)
		row("Health", "%s, answers in %.1f ms", r.Health.Status, r.Health.RoundTrip)
		row("Sandboxes", "%s, %.0f MiB of memory", r.Health.counts(), r.Health.Memory)
	} else {
		row("Server", "none runs: questions are answered in this process")
	}
	if a := r.Answer; a != nil {
		reportAnswer(a, row)
	}
	if err := t.Flush(); err != nil || r.Answer == nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s", text.Inert(r.Answer.Output))
	if err == nil && r.Answer.Error != "" {
		_, err = fmt.Fprintf(w, "\n%s\n", text.Inert(r.Answer.Error))
	}
	return err
}

// counts says how many sandboxes are in which state.
func (h reportHealth) counts() string {
	if len(h.Sandboxes) == 0 {
		return "none"
	}
	var parts []string
	for status, n := range h.Sandboxes {
		parts = append(parts, fmt.Sprintf("%d %s", n, status))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// reportAnswer reports the cost of an answer.
func reportAnswer(a *hutch.Answer, row func(title, format string, args ...any)) {
	switch {
	case a.Model != "":
		row("Generation", "%v by %s: %v, %d repairs", ms(a.GenerationTime), a.Model, a.Usage, a.Repairs)
	case a.Cached:
		row("Generation", "none: the program was known from an earlier question")
	}
	row("Execution", "%v, exit code %d", ms(a.ExecutionTime), a.ExitCode)
	if u := a.Resources; u != nil {
		row("Sandbox", "%s: %.3f s of CPU, %.1f MiB of memory at its peak", a.SandboxID, u.CPUSeconds, u.MemoryPeak)
	}
}
