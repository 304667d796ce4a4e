package main

import (
	"context"
	"math"
	"slices"
)

// aim is a figure with its highest or lowest allowed value.
type aim struct {
	what    string
	value   float64
	limit   float64
	atLeast bool
	unit    string
}

// distance returns how far a figure is from its aim.
func (a aim) distance() string {
	far := a.value / a.limit
	if a.atLeast {
		far = a.limit / a.value
	}
	if far <= 1 {
		return "met"
	}
	return number(far) + " × too far"
}

func (a aim) row(t *table) {
	sign := "≤ "
	if a.atLeast {
		sign = "≥ "
	}
	t.row(a.what, sign+number(a.limit)+" "+a.unit, number(a.value)+" "+a.unit, a.distance())
}

// measured returns a figure. For 0 it returns NaN, because then the figure's table was left out.
func measured(v float64) float64 {
	if v == 0 {
		return math.NaN()
	}
	return v
}

// best returns the largest rate; NaN when none was measured.
func best(rates []float64) float64 {
	if len(rates) == 0 {
		return math.NaN()
	}
	return slices.Max(rates)
}

// aims shows how far each figure is from its aim.
func (l *lab) aims(context.Context) (table, error) {
	t := newTable("", "aim", "measured", "")
	for _, f := range l.runtimes {
		for _, a := range f.aims(l.bare) {
			if math.IsNaN(a.value) {
				continue
			}
			a.what = f.runtime + ": " + a.what
			a.row(&t)
		}
	}
	if len(t.rows) == 1 {
		t.note("Nothing was measured before: this table compares the figures of the other tables with their aims. Run the bench without -only.")
	}
	t.note("The multiples are of a bare vfork + exec on the host for native, and of a fork + exec by a shell inside for gvisor.")
	return t, nil
}

func (f *figures) aims(b bare) []aim {
	create, own, private := 10.0, b.fork.at(0.5), 3.0
	if f.runtime == "gvisor" {
		create, own, private = 90, median(f.inside), 10
	}
	all := []aim{
		{what: "cold create, p50", value: f.create.at(0.5), limit: create, unit: "ms"},
		{what: "exec in process, p50", value: f.exec[inProcess].at(0.5) / own, limit: 3, unit: "×"},
		{what: "exec over REST, p50", value: f.exec[overREST].at(0.5) / own, limit: 3, unit: "×"},
		{what: "exec over MCP, p50", value: f.exec[overMCP].at(0.5) / own, limit: 3, unit: "×"},
		{what: "exec over MCP while all sandboxes of the test run, p50", value: f.crowd.at(0.5), limit: 50, unit: "ms"},
		{what: "exec over MCP while all sandboxes of the test run, p95", value: f.crowd.at(0.95), limit: 100, unit: "ms"},
		{what: "exec over MCP while all sandboxes of the test run, p99", value: f.crowd.at(0.99), limit: 200, unit: "ms"},
		{what: "exec over MCP, best rate", value: best(f.rate[overMCP]), limit: 1000, atLeast: true, unit: "/s"},
		{what: "calls under load that succeed", value: 100 * measured(f.success), limit: 99.9, atLeast: true, unit: "%"},
		{what: "private memory, idle", value: measured(f.memory.private), limit: private, unit: "MiB"},
		{what: "CPU of an exec over MCP", value: measured(f.cpu[overMCP]), limit: 100, unit: "ms"},
		{what: "CPU of it beyond the program", value: f.beyond(overMCP), limit: 2, unit: "ms"},
		{what: "a line of a log over REST, p50", value: measured(f.log.line), limit: 2, unit: "ms"},
	}
	for _, c := range f.clients {
		all = append(all, aim{what: "exec by " + c.name + " adds, p50", value: c.adds, limit: 2, unit: "ms"})
	}
	if f.page.rate > 0 {
		all = append(all, aim{what: "a page by a preview adds, p50", value: f.page.adds, limit: 1, unit: "ms"},
			aim{what: "bytes by a preview, of those without", value: 100 * f.page.share, limit: 50, atLeast: true, unit: "%"})
		if f.runtime == "native" {
			all = append(all, aim{what: "pages by previews", value: f.page.rate, limit: 5000, atLeast: true, unit: "/s"})
		}
	}
	if f.governed > 0 {
		all = append(all, aim{what: "exec over MCP with all that governs it, best rate", value: f.governed, limit: 1000, atLeast: true, unit: "/s"})
	}
	if len(f.ready) > 0 {
		all = append(all,
			aim{what: "create from the pool, p50", value: f.ready.at(0.5), limit: 2, unit: "ms"},
			aim{what: "creates at once from the pool, p50", value: f.together.at(0.5), limit: 150, unit: "ms"},
		)
	}
	if len(f.first) > 1 {
		limit := 5.0
		if f.runtime == "gvisor" {
			limit = 15
		}
		all = append(all, aim{what: "first code that uses pandas, warm, p50", value: f.first[1].at(0.5), limit: limit, unit: "ms"})
	}
	if f.questions > 0 {
		all = append(all, aim{what: "POST /execute in a conversation adds, p50", value: f.questions, limit: 30, unit: "ms"})
	}
	if f.runtime == "native" && len(f.cell) > 0 {
		all = append(all,
			aim{what: "a cell of a Jupyter kernel, p50", value: f.cell.at(0.5), limit: 5, unit: "ms"},
			aim{what: "a Jupyter kernel from the pool, p50", value: f.kernel.at(0.5), limit: 20, unit: "ms"},
		)
	}
	if f.runtime == "native" {
		all = append(all, aim{what: "a log followed over REST", value: measured(f.log.followed), limit: 200, atLeast: true, unit: "MB/s"})
	}
	if len(f.wake) > 0 {
		all = append(all, aim{what: "wake from hibernation, p50", value: f.wake.at(0.5), limit: 100, unit: "ms"})
	}
	if len(f.forked) > 0 {
		all = append(all, aim{what: "fork of a Python with 30 MB, p50", value: f.forked.at(0.5), limit: 100, unit: "ms"})
	}
	if len(f.template) > 0 {
		all = append(all, aim{what: "begin as a template with pandas, p50", value: f.template.at(0.5), limit: 150, unit: "ms"})
	}
	return all
}
