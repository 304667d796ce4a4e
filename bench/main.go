// Command bench measures Hutch and the bare kernel in one run, for comparison.
//
//	go run ./bench            both runtimes, a few minutes
//	go run ./bench -quick     seconds, to see that it works
//
// A single figure depends mostly on the machine. So the report shows each figure next to the kernel's figure for the same
// operation without Hutch, measured in the same rounds. A round runs every subject in turn, and the report shows the
// median of the rounds.
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
	debug.SetGCPercent(400) // as in cmd/hutch
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// plan sets how much is measured.
type plan struct {
	runtimes string
	bin      string
	profile  string
	only     string
	page     string // address to serve a page at, instead of a measurement
	rounds   int
	calls    int           // calls of each subject in a round
	creates  int           // creates of each runtime in a round
	loadTime time.Duration // how long each number of callers loads the server in a round
	callers  [3]int        // under load
	alive    int           // sandboxes, for memory
	burst    int           // creates at once
	bytes    int64         // bytes of output, for throughput
	filled   int           // files of 100 kB, in a sandbox that is copied
	calm     time.Duration // pause before each measurement of neighbours
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
	p.filled, p.calm = 5000, time.Second
	p.creates, p.loadTime, p.callers, p.alive, p.burst, p.bytes = 10, 2*time.Second, [3]int{1, 8, 32}, 100, 100, 1<<28
	if quick {
		p.rounds, p.calls, p.creates, p.loadTime, p.callers, p.alive, p.burst, p.bytes = 1, 10, 2, 200*time.Millisecond, [3]int{1, 2, 4}, 3, 4, 8<<20
		p.filled, p.calm = 50, 50*time.Millisecond
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
	steps, err := lab.steps().selected(p.only)
	if err != nil {
		return err
	}
	for _, step := range steps {
		t, err := step.measure(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(step.title), err)
		}
		fmt.Printf("\n%s\n\n%s", step.title, t)
	}
	return nil
}

// step measures one table.
type step struct {
	title   string
	measure func(context.Context) (table, error)
}

type steps []step

// steps returns all tables, in the order in which they are measured.
func (l *lab) steps() steps {
	return steps{
		{"Create and destroy, ms", l.creation},
		{"Pool: creates with and without, ms", l.pool},
		{"Images, ms", l.images},
		{"By hand: a new sandbox for one /bin/true, ms", l.byHand},
		{"Interactive: from create to the end of the first command, over REST, ms", l.interactive},
		{"Exec of /bin/true, one caller, ms", l.latency},
		{"Clients: exec of /bin/true, ms", l.clients},
		{"Load: exec of /bin/true, calls a second by number of callers, each with a sandbox", l.load},
		{"Scaling: exec of /bin/true over MCP, calls a second", l.scaling},
		{fmt.Sprintf("Governance: exec of /bin/true over MCP in %d sandboxes, calls a second by number of callers", l.alive), l.governedLoad},
		{"Neighbours: exec of /bin/true alone and beside an attack, ms", l.neighbours},
		{"CPU for one exec of /bin/true, ms", l.cpu},
		{"Output", l.output},
		{"Code contexts, ms", l.contexts},
		{"Questions: POST /execute with a model that answers at once, ms", l.questions},
		{"Jupyter kernels, ms", l.notebooks},
		{"First code in a sandbox, ms", l.warm},
		{"Tokens, policy, quotas, metrics and audit before a call that does nothing, µs", l.governance},
		{"Hibernation, ms", l.sleep},
		{"Snapshots, ms", l.snapshots},
		{"Copies of a sandbox with many files", l.fileCopies},
		{"Logs of background processes, with a follower", l.logs},
		{"Previews", l.previews},
		{"Files in and out", l.files},
		{"SSH and screens, ms", l.doors},
		{"Reading a file of 4 kB, p50, ms", l.reads},
		{fmt.Sprintf("%d sandboxes alive", l.alive), l.manySandboxes},
		{"Aims", l.aims}, // of all measurements above
	}
}

// selected returns the steps whose title begins with a text.
func (all steps) selected(title string) (some steps, err error) {
	titles := ""
	for _, s := range all {
		titles += "\n  " + s.title
		if strings.HasPrefix(s.title, title) {
			some = append(some, s)
		}
	}
	if some == nil {
		return nil, fmt.Errorf("no table's title begins with %q; the titles are:%s", title, titles)
	}
	return some, nil
}

// profiled runs f, with the profiler on request.
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
