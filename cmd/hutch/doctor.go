package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"hutch/internal/driver"
	"hutch/internal/host"
)

func newDoctor(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "doctor", Short: "Say what works on this host, what does not, and how to fix it", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := h.open(); err != nil {
				return err
			}
			reports, err := examine(c.Context(), h)
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(std.out, reports)
			} else {
				writeReports(std.out, reports)
			}
			if err == nil && !anyWorks(reports) {
				err = exitCode(1)
			}
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// report describes one part of Hutch.
type report struct {
	Part    string `json:"part"`
	Runtime bool   `json:"runtime"`
	driver.Report
}

func examine(ctx context.Context, h *home) ([]report, error) {
	dir, err := os.MkdirTemp(h.dir, ".doctor-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ds, err := host.Drivers(dir, nil)
	if err != nil {
		return nil, err
	}
	var reports []report
	for _, d := range ds {
		reports = append(reports, report{d.Name(), true, host.Check(ctx, d)})
	}
	reports = append(reports, report{Part: "image host", Report: host.CheckImage(ctx, host.Images(h.data().Images(), hostPrograms()))})
	if r, ok := examinePool(ctx, h); ok {
		reports = append(reports, report{Part: "pool", Report: r})
	}
	return reports, nil
}

func anyWorks(reports []report) bool {
	for _, r := range reports {
		if r.Runtime && r.OK {
			return true
		}
	}
	return false
}

var marks = map[driver.Level]string{driver.Good: "ok  ", driver.Warning: "warn", driver.Bad: "FAIL"}

func writeReports(w io.Writer, reports []report) {
	for _, r := range reports {
		verdict := "works"
		optional := r.Runtime && !r.OK && host.Optional(r.Part)
		switch {
		case optional:
			verdict = "not here, and optional"
		case !r.OK:
			verdict = "does not work here"
		}
		fmt.Fprintf(w, "%s: %s\n", r.Part, verdict)
		for _, f := range r.Findings {
			mark := marks[f.Level]
			if optional && f.Level == driver.Warning {
				mark = "note"
			}
			fmt.Fprintf(w, "  %s  %-22s %s\n", mark, f.Name, f.Detail)
			if f.Fix != "" && f.Level != driver.Good {
				fmt.Fprintf(w, "        %-22s fix: %s\n", "", f.Fix)
			}
		}
		fmt.Fprintln(w)
	}
}
