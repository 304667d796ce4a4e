package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"hutch"
)

// bare has the measurements of the baselines.
type bare struct {
	fork, namespaces series
	cpu              float64 // ms for a fork and exec
}

// figures has the measurements of one runtime.
type figures struct {
	runtime   string
	create    series
	ready     series               // creates from the pool
	together  series               // many creates from the pool at once
	first     []series             // the first code in a sandbox whose interpreter is ready: Python, pandas
	wake      series               // a wake from hibernation, up to the first result
	forked    series               // a fork, up to the first result
	template  series               // a sandbox that begins with pandas, up to its first use of pandas
	exec      map[string]series    // by path
	rate      map[string][]float64 // calls a second by path, for each number of callers
	governed  float64              // calls a second over MCP, with all layers in front
	success   float64              // share of the calls under load
	inside    []float64            // ms for a fork and exec by a shell inside, by round
	insideCPU []float64
	cpu       map[string]float64 // ms, by path
	crowd     series             // exec over MCP while many sandboxes are running
	memory    memory             // memory of one sandbox
	log       figure             // over REST
	page      view               // through a preview
	clients   []clientFigure
	questions float64 // ms that POST /execute adds to its model, in a conversation
	cell      series  // a cell of a Jupyter kernel
	kernel    series  // the start of a Jupyter kernel from the pool
}

// creation measures how long a sandbox takes from the create call until a command has run in it, and how long its
// destruction takes.
func (l *lab) creation(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "× "+bareNamespaces)
	lives := make([]lives, len(l.runtimes))
	for range l.rounds {
		time.Sleep(settle)
		base, err := interleave(ctx, 1, 4*l.creates, []subject{namespaces})
		if err != nil {
			return t, err
		}
		l.bare.namespaces = append(l.bare.namespaces, base[0]...)
		for i, f := range l.runtimes {
			time.Sleep(settle)
			if err := lives[i].round(ctx, l, f.runtime); err != nil {
				return t, err
			}
		}
	}
	base := l.bare.namespaces
	t.quantiles(bareNamespaces, base, base)
	for i, f := range l.runtimes {
		f.create = lives[i].create
		t.quantiles(f.runtime+": create", lives[i].create, base)
		t.quantiles(f.runtime+": create and run /bin/true", lives[i].first, base)
		t.quantiles(f.runtime+": destroy", lives[i].end, base)
	}
	return t, nil
}

// settle is the time that the kernel needs to tear down the network namespaces of earlier sandboxes. It does so in the
// background, and a new network namespace has to wait for that.
const settle = 500 * time.Millisecond

// lives are the times of sandboxes that were made and destroyed.
type lives struct{ create, first, end series }

func (v *lives) round(ctx context.Context, l *lab, runtime string) error {
	var create, first, end []time.Duration
	for range l.creates {
		began := time.Now()
		sb, err := l.engine.Create(ctx, hutch.CreateRequest{Runtime: runtime})
		if err != nil {
			return err
		}
		create = append(create, time.Since(began))
		if err := runIn(ctx, l.engine, sb.ID, program); err != nil {
			return err
		}
		first = append(first, time.Since(began))
		began = time.Now()
		if _, err = l.engine.Destroy(ctx, sb.ID, true); err != nil {
			return err
		}
		end = append(end, time.Since(began))
	}
	v.create, v.first, v.end = append(v.create, create), append(v.first, first), append(v.end, end)
	return nil
}

// latency measures calls of one caller, one after the other.
func (l *lab) latency(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "× "+bareFork)
	subjects := []subject{fork, byLibrary, shell}
	for _, f := range l.runtimes {
		subjects = append(subjects, l.ways(f.box)...)
		subjects = append(subjects, subject{"Go, in process, a shell", func(ctx context.Context, caller int) error {
			return runIn(ctx, l.engine, f.box(caller), "true && true")
		}})
	}
	all := make([]series, len(subjects))
	for range l.rounds {
		round, err := interleave(ctx, 1, l.calls, subjects)
		if err != nil {
			return t, err
		}
		for i := range all {
			all[i] = append(all[i], round[i]...)
		}
		for _, f := range l.runtimes {
			if err := l.lookInside(ctx, f); err != nil {
				return t, err
			}
		}
	}
	l.bare.fork = all[0]
	base := l.bare.fork
	for i, s := range subjects[:3] {
		t.quantiles(s.name, all[i], base)
	}
	subjects, all = subjects[3:], all[3:]
	for i, f := range l.runtimes {
		inside := median(f.inside)
		t.row(f.runtime+": fork + exec inside, by a shell", number(inside), "", "", ratio(inside, base.at(0.5)))
		f.exec = map[string]series{}
		for k := 4 * i; k < 4*(i+1); k++ {
			f.exec[subjects[k].name] = all[k]
			t.quantiles(f.runtime+": "+subjects[k].name, all[k], base)
		}
	}
	return t, nil
}

// box returns the id of the sandbox of a caller.
func (f *figures) box(caller int) string { return box(f.runtime, caller) }

// lookInside measures a fork and exec inside, without Hutch's own part: a shell
// does it many times.
func (l *lab) lookInside(ctx context.Context, f *figures) error {
	loop := func(n int) (time.Duration, time.Duration, error) {
		cpu := cpuOf(l.sandboxes())
		res, err := l.engine.Exec(ctx, f.box(0), hutch.ExecRequest{Command: fmt.Sprintf("for ((i = 0; i < %d; i++)); do /bin/true; done", n)}, nil)
		return res.Duration, cpuOf(l.sandboxes()) - cpu, verdict(res.ExitCode, err)
	}
	n := 2 * l.calls
	few, fewCPU, err := loop(1)
	if err != nil {
		return err
	}
	many, manyCPU, err := loop(n + 1)
	if err != nil {
		return err
	}
	f.inside = append(f.inside, ms(many-few)/float64(n))
	f.insideCPU = append(f.insideCPU, ms(manyCPU-fewCPU)/float64(n))
	return nil
}

// pressed is a subject under load.
type pressed struct {
	subject
	of      *figures // nil for the baseline
	tallies [3]tally // by number of callers
}

// load measures calls of many callers at once.
func (l *lab) load(ctx context.Context) (table, error) {
	t := newTable("callers", fmt.Sprint(l.callers[0]), fmt.Sprint(l.callers[1]), fmt.Sprint(l.callers[2]), fmt.Sprintf("× %s, %d callers", bareFork, l.callers[1]), "success")
	all := []*pressed{{subject: fork}}
	for _, f := range l.runtimes {
		for _, s := range l.ways(f.box) {
			all = append(all, &pressed{subject: s, of: f})
		}
	}
	err := l.profiled(func() error {
		for range l.rounds {
			for _, p := range all {
				for i, n := range l.callers {
					p.tallies[i].press(ctx, p.subject, n, l.plan.loadTime)
				}
			}
		}
		return ctx.Err()
	})
	base := all[0].tallies[1].rate()
	for _, p := range all {
		name := p.name
		if p.of != nil {
			name = p.of.runtime + ": " + name
			p.of.press(p)
		}
		t.row(name, number(p.tallies[0].rate()), number(p.tallies[1].rate()), number(p.tallies[2].rate()),
			ratio(p.tallies[1].rate(), base), fmt.Sprintf("%.2f %%", 100*p.success()))
		if err := p.failure(); err != nil {
			t.note(fmt.Sprintf("One of the failures of %s: %v (%v)", name, err, hutch.AsError(err).Cause))
		}
	}
	return t, err
}

func (p *pressed) success() float64 {
	var calls, failed int64
	for _, t := range p.tallies {
		calls, failed = calls+t.calls, failed+t.failed
	}
	return 1 - float64(failed)/float64(max(calls, 1))
}

func (p *pressed) failure() error {
	for _, t := range p.tallies {
		if t.failure != nil {
			return t.failure
		}
	}
	return nil
}

// press records the results of a path under load.
func (f *figures) press(p *pressed) {
	if f.rate == nil {
		f.rate, f.success = map[string][]float64{}, 1
	}
	for _, t := range p.tallies {
		f.rate[p.name] = append(f.rate[p.name], t.rate())
	}
	f.success = min(f.success, p.success())
}

// sandboxes returns the processes of all sandboxes.
func (l *lab) sandboxes() []int {
	return l.programs.running(ours[1:]...)
}

// cpu measures the total CPU cost of a call: this process, the server, the agent, the runtime and the program itself.
func (l *lab) cpu(ctx context.Context) (table, error) {
	t := newTable("", "ms", "beyond the program itself")
	cost := func(s subject, meter func() time.Duration) (float64, error) {
		before := meter()
		n := max(l.rounds*l.calls, 100) // the kernel counts in ticks of 10 ms
		if _, err := interleave(ctx, 1, n, []subject{s}); err != nil {
			return 0, err
		}
		return ms(meter()-before) / float64(n), nil
	}
	var err error
	if l.bare.cpu, err = cost(fork, spent); err != nil {
		return t, err
	}
	t.row(bareFork, number(l.bare.cpu), "")
	here := func() time.Duration { return spent() + cpuOf(l.sandboxes()) }
	there := func() time.Duration {
		return cpuOf(l.programs.running(ours...))
	}
	for _, f := range l.runtimes {
		if len(f.insideCPU) == 0 { // the table of latencies was left out
			if err := l.lookInside(ctx, f); err != nil {
				return t, err
			}
		}
		t.row(f.runtime+": fork + exec inside, by a shell", number(median(f.insideCPU)), "")
		f.cpu = map[string]float64{}
		for _, s := range l.ways(f.box) {
			meter := there
			if s.name == inProcess {
				meter = here
			}
			if f.cpu[s.name], err = cost(s, meter); err != nil {
				return t, err
			}
			if f.cpu[s.name] < median(f.insideCPU)/4 {
				return t, fmt.Errorf("%s: %s took %s ms, so the processes of its sandboxes were not found", f.runtime, s.name, number(f.cpu[s.name]))
			}
			t.row(f.runtime+": "+s.name, number(f.cpu[s.name]), number(f.beyond(s.name)))
		}
	}
	t.note("Of the server and the sandboxes; in process, of the caller too.")
	return t, nil
}

// beyond returns the CPU time of a call minus the CPU time of the program itself.
func (f *figures) beyond(way string) float64 { return measured(f.cpu[way]) - median(f.insideCPU) }

// output measures the latency and the rate of output.
func (l *lab) output(ctx context.Context) (table, error) {
	t := newTable("", "first byte of `echo`, ms", "MB/s of zeros", "× a pipe")
	type way struct {
		name   string
		svc    hutch.Service
		box    string
		firsts []float64
		rates  []float64
	}
	var ways []*way
	for _, f := range l.runtimes {
		ways = append(ways, &way{name: f.runtime + ": " + inProcess, svc: l.engine, box: f.box(0)},
			&way{name: f.runtime + ": " + overREST, svc: l.server.rest, box: f.box(0)})
	}
	var pipe []float64
	for range l.rounds {
		rate, err := pipeRate(ctx, zeros(l.bytes))
		if err != nil {
			return t, err
		}
		pipe = append(pipe, rate)
		for _, w := range ways {
			first, err := l.firstByte(ctx, w.svc, w.box)
			if err != nil {
				return t, err
			}
			rate, err := l.outputRate(ctx, w.svc, w.box)
			if err != nil {
				return t, err
			}
			w.firsts, w.rates = append(w.firsts, first), append(w.rates, rate)
		}
	}
	t.row("a pipe", "", number(median(pipe)), ratio(1, 1))
	for _, w := range ways {
		t.row(w.name, number(median(w.firsts)), number(median(w.rates)), ratio(median(w.rates), median(pipe)))
	}
	return t, nil
}

func (l *lab) firstByte(ctx context.Context, svc hutch.Service, id string) (float64, error) {
	var all []time.Duration
	for range l.calls {
		began := time.Now()
		var first time.Duration
		_, err := svc.Exec(ctx, id, hutch.ExecRequest{Command: "echo x"}, func(hutch.Output) error {
			if first == 0 {
				first = time.Since(began)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		all = append(all, first)
	}
	return ms(quantile(all, 0.5)), nil
}

func (l *lab) outputRate(ctx context.Context, svc hutch.Service, id string) (float64, error) {
	var got int64
	began := time.Now()
	res, err := svc.Exec(ctx, id, hutch.ExecRequest{Command: zeros(l.bytes), Timeout: 600, MaxOutput: 2}, func(o hutch.Output) error {
		got += int64(len(o.Data))
		return nil
	})
	if err := verdict(res.ExitCode, err); err != nil {
		return 0, err
	}
	if got != l.bytes {
		return 0, fmt.Errorf("%d bytes of %d arrived", got, l.bytes)
	}
	return megabytes(got, time.Since(began)), nil
}

// rest is how long to wait until a started sandbox has given back the memory that only its start needed: one second
// more than it takes.
const rest = 3 * time.Second

// manySandboxes measures many sandboxes at once: the memory of each while idle, and calls that go to all of them in turn.
func (l *lab) manySandboxes(ctx context.Context) (table, error) {
	t := newTable("", "private MiB each", "Pss", "RssAnon", "exec over MCP p50", "p95", "p99 ms")
	for _, f := range l.runtimes {
		if err := l.manySandboxesOf(ctx, f); err != nil {
			return t, fmt.Errorf("%s: %w", f.runtime, err)
		}
		t.row(f.runtime, number(f.memory.private), number(f.memory.pss), number(f.memory.anon),
			number(f.crowd.at(0.5)), number(f.crowd.at(0.95)), number(f.crowd.at(0.99)))
	}
	t.note("Memory of all processes of a sandbox, before anything ran in it. Private: what no other sandbox has, and is in no file; Pss adds a fair share of programs and libraries.")
	return t, nil
}

func (l *lab) manySandboxesOf(ctx context.Context, f *figures) error {
	before := l.sandboxes()
	var ids []string
	defer func() {
		for _, id := range ids {
			l.server.rest.Destroy(context.WithoutCancel(ctx), id, true)
		}
	}()
	for i := range l.alive {
		id := "crowd-" + f.runtime + "-" + strconv.Itoa(i)
		if _, err := l.server.rest.Create(ctx, hutch.CreateRequest{ID: id, Runtime: f.runtime}); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	time.Sleep(rest)
	pids := slices.DeleteFunc(l.sandboxes(), func(pid int) bool { return slices.Contains(before, pid) })
	sum, err := memoryOf(pids)
	if err != nil {
		return err
	}
	n := float64(l.alive)
	f.memory = memory{sum.private / n, sum.pss / n, sum.anon / n}
	var turn atomic.Int64
	ways := l.ways(func(int) string { return ids[int(turn.Add(1))%len(ids)] })
	all, err := interleave(ctx, l.rounds, l.calls, ways[2:])
	if err != nil {
		return err
	}
	f.crowd = all[0]
	return nil
}
