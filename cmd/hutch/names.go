package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hutch"
)

// nameTime bounds the wait for the names to complete.
const nameTime = 2 * time.Second

// withNames completes the names of sandboxes and processes in the arguments of a command and its sub-commands. It also
// suggests a similar name for a missing sandbox.
func (h *home) withNames(c *cobra.Command) {
	for _, sub := range c.Commands() {
		h.withNames(sub)
	}
	if !strings.Contains(c.Use, "SANDBOX") {
		return
	}
	c.ValidArgsFunction = h.complete
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error { return h.correct(c.Context(), run(c, args)) }
	}
}

// complete offers sandboxes first and then, if the command is about them,
// processes; otherwise files.
func (h *home) complete(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), nameTime)
	defer cancel()
	switch {
	case len(args) == 0 || strings.Contains(c.Use, "SANDBOX..."):
		return h.sandboxes(ctx), cobra.ShellCompDirectiveNoFileComp
	case strings.Contains(c.Use, "PROCESS"):
		return h.processes(ctx, args[0]), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// sandboxes returns the ids of the sandboxes, if the server answers.
func (h *home) sandboxes(ctx context.Context) (ids []string) {
	svc, err := h.dial()
	if err != nil {
		return nil
	}
	list, _ := svc.Sandboxes(ctx, hutch.Filter{})
	for _, s := range list {
		ids = append(ids, s.ID)
	}
	return ids
}

func (h *home) processes(ctx context.Context, sandbox string) []string {
	svc, err := h.dial()
	if err != nil {
		return nil
	}
	list, _ := svc.Processes(ctx, sandbox)
	return processNames(list)
}

func processNames(list []hutch.Process) (names []string) {
	for _, p := range list {
		names = append(names, p.ID)
		if p.Name != "" {
			names = append(names, p.Name)
		}
	}
	return names
}

// correct adds a suggestion to an error about a missing sandbox.
func (h *home) correct(ctx context.Context, err error) error {
	e, ok := errors.AsType[*hutch.Error](err)
	if !ok || e.Kind != hutch.NotFound {
		return err
	}
	about, id := e.About()
	if about != hutch.AboutSandbox { // something else than the sandbox is missing
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, nameTime)
	defer cancel()
	ids := h.sandboxes(ctx)
	if slices.Contains(ids, id) { // something in the sandbox is missing
		return err
	}
	return fmt.Errorf("%w%s", err, similarName(id, ids))
}

// similarName returns a question that suggests the most similar name; "" if none is similar.
func similarName(name string, names []string) string {
	best, limit := "", 1+len(name)/3
	for _, n := range slices.Sorted(slices.Values(names)) {
		if d := distance(name, n); d <= limit {
			best, limit = n, d-1
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// distance returns the number of characters to insert, remove or change to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0]++
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, before+1)
		}
	}
	return row[len(b)]
}
