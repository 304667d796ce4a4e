package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
	"hutch/internal/driver"
)

func newPool(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "pool", Short: "Show which sandboxes the server keeps ready",
		Long: `Show which sandboxes the server keeps ready before they are asked for, how many
creates found one, and why there are fewer than wanted.
` + remoteHelp,
		Args: cobra.NoArgs,
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, _ []string) error {
			s, err := svc.Pool(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(std.out, s)
			}
			fmt.Fprintln(std.out, poolLine(s))
			return writeList(std.out, false, s.Kinds, "RUNTIME\tIMAGE\tMEMORY\tBEGINS\tREADY\tWANTED\tHITS\tMISSES\tWHY", poolRow)
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func poolLine(s hutch.PoolState) string {
	if s.Max == 0 {
		return "the pool is off"
	}
	return fmt.Sprintf("%d ready and %d vacant of at most %d; %d creates found one ready, %d did not", s.Ready, s.Vacant, s.Max, s.Hits, s.Misses)
}

func poolRow(k hutch.PoolKind) []any {
	return []any{k.Runtime, k.Image, fmt.Sprintf("%d MiB", k.Limits.Memory), begins(k), k.Ready, k.Wanted, k.Hits, k.Misses, k.Why}
}

// begins says how instances of a kind start.
func begins(k hutch.PoolKind) string {
	switch {
	case k.Vacant:
		return "as what was saved"
	case k.Memory:
		return "as " + k.Snapshot
	case k.Snapshot != "":
		return "with the files of " + k.Snapshot
	}
	return "empty"
}

// poolTime is how long the doctor waits for a server, which need not run.
const poolTime = 2 * time.Second

// examinePool describes the server's pool for the doctor; ok is false if no server is known or it does not answer.
func examinePool(ctx context.Context, h *home) (r driver.Report, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, poolTime)
	defer cancel()
	svc, err := h.dial()
	if err != nil {
		return r, false
	}
	s, err := svc.Pool(ctx)
	if err != nil {
		return r, false
	}
	r.OK = true
	r.Findings = append(r.Findings, driver.Finding{Name: "all", Level: driver.Good, Detail: poolLine(s)})
	for _, k := range s.Kinds {
		r.Findings = append(r.Findings, poolFinding(k))
	}
	return r, true
}

func poolFinding(k hutch.PoolKind) driver.Finding {
	f := driver.Finding{
		Name: k.Runtime + " " + k.Image, Level: driver.Good,
		Detail: fmt.Sprintf("%s, %d MiB: %d of %d ready, %d hits, %d misses", begins(k), k.Limits.Memory, k.Ready, k.Wanted, k.Hits, k.Misses),
	}
	if k.Why != "" {
		f.Detail += " (" + k.Why + ")"
	}
	if k.Ready == 0 && k.Wanted > 0 {
		f.Level, f.Fix = driver.Warning, "creates of this kind are cold meanwhile: see docs/pool.md"
	}
	return f
}
