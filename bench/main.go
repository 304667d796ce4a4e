// Command bench measures Hutch beside the bare kernel, in one run.
//
//	go run ./bench            both runtimes, a few minutes
//	go run ./bench -quick     seconds, to see that it works
//
// A figure alone says more about the machine than about us. So every figure
// stands beside what the kernel takes for the same thing without Hutch,
// measured in the same rounds: a round runs every subject in turn, and what is
// shown is the median of the rounds.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"
)

func main() {
	debug.SetGCPercent(400) // as cmd/hutch
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// plan is how much of everything is measured.
type plan struct {
	runtimes string
	bin      string
	profile  string
	only     string
	page     string // serve a page there instead
	rounds   int
	calls    int           // of each subject in a round
	creates  int           // of each runtime in a round
	loadTime time.Duration // of one number of callers in a round
	callers  [3]int        // under load
	alive    int           // sandboxes, for memory
	burst    int           // creates at once
	bytes    int64         // of output, for throughput
	filled   int           // files of 100 kB, in a sandbox that is copied
	scale    scale
	plots    string // folder for plots; empty for none
}

func parse(args []string) (plan, error) {
	var p plan
	var quick bool
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&p.runtimes, "runtime", "native,gvisor", "runtimes to measure")
	f.StringVar(&p.bin, "bin", "bin", "folder of the built programs")
	f.IntVar(&p.calls, "n", 200, "calls of each subject in a round")
	f.IntVar(&p.rounds, "rounds", 5, "rounds")
	f.StringVar(&p.only, "only", "", "measure only the table whose title begins so")
	f.StringVar(&p.page, "page", "", "serve a page at this address instead, for the bench to look at")
	f.BoolVar(&quick, "quick", false, "a few calls of everything, to see that it works")
	f.StringVar(&p.profile, "cpuprofile", "", "write a profile of the in-process calls under load to this file")
	f.StringVar(&p.plots, "plots", "", "folder to write plots to, as SVG")
	if err := f.Parse(args); err != nil {
		return p, err
	}
	p.scale = scale{[]int{1, 10, 100, 500}, []int{1, 2, 4, 8, 16, 32, 64}, map[string]int{"gvisor": 100}}
	p.filled = 5000
	p.creates, p.loadTime, p.callers, p.alive, p.burst, p.bytes = 10, 2*time.Second, [3]int{1, 8, 32}, 100, 100, 1<<28
	if quick {
		p.rounds, p.calls, p.creates, p.loadTime, p.callers, p.alive, p.burst, p.bytes = 1, 10, 2, 200*time.Millisecond, [3]int{1, 2, 4}, 3, 4, 8<<20
		p.filled = 50
		p.scale = scale{sandboxes: []int{1, 3}, callers: []int{1, 4}}
	}
	return p, nil
}

func run(ctx context.Context, args []string) error {
	p, err := parse(args)
	if err != nil {
		return err
	}
	if p.page != "" {
		return servePage(p.page)
	}
	lab, err := newLab(ctx, p)
	if err != nil {
		return err
	}
	defer lab.close()
	fmt.Println(machine())
	fmt.Printf("%d rounds of %d calls; MCP (revision %s) and REST against a `hutch serve` process over loopback TCP\n", p.rounds, p.calls, revision)
	for _, step := range []struct {
		title string
		do    func(context.Context) (table, error)
	}{
		{"Create and destroy, ms", lab.creation},
		{"Pool: creates with and without, ms", lab.pool},
		{"By hand: a new sandbox for one /bin/true, ms", lab.byHand},
		{"Interactive: from create to the end of the first command, over REST, ms", lab.interactive},
		{"Exec of /bin/true, one caller, ms", lab.latency},
		{"Load: exec of /bin/true, calls a second by number of callers, each with a sandbox", lab.load},
		{"Scaling: exec of /bin/true over MCP, calls a second", lab.scaling},
		{fmt.Sprintf("Governance: exec of /bin/true over MCP in %d sandboxes, calls a second by number of callers", p.alive), lab.governedLoad},
		{"CPU for one exec of /bin/true, ms", lab.cpu},
		{"Output", lab.output},
		{"Code contexts, ms", lab.contexts},
		{"First code in a sandbox, ms", lab.warm},
		{"Tokens, policy, quotas, metrics and audit before a call that does nothing, µs", lab.governance},
		{"Hibernation, ms", lab.sleep},
		{"Snapshots, ms", lab.snapshots},
		{"Copies of a sandbox with many files", lab.fileCopies},
		{"Logs of background processes, somebody following", lab.logs},
		{"Previews", lab.previews},
		{"Files in and out", lab.files},
		{"Reading a file of 4 kB, p50, ms", lab.reads},
		{fmt.Sprintf("%d sandboxes alive", p.alive), lab.crowd},
		{"Aims", lab.aims}, // of all that was measured before
	} {
		if !strings.HasPrefix(step.title, p.only) {
			continue
		}
		t, err := step.do(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(step.title), err)
		}
		fmt.Printf("\n%s\n\n%s", step.title, t)
	}
	return nil
}

// profiled runs f under the profiler where that was asked for.
func (p plan) profiled(f func() error) error {
	if p.profile == "" {
		return f()
	}
	out, err := os.Create(p.profile)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := pprof.StartCPUProfile(out); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return f()
}
