package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"hutch"
	"hutch/internal/text"
)

// topView is the data of hutch top, and its form for a terminal of a given size. It does no input or output.
type topView struct {
	at      time.Time // of the last report
	read    time.Time // of the last report that is not partial
	rows    map[topKey]*topRow
	problem string // why no new data arrives
	column  int    // index in topColumns of the sort column
	reverse bool
	chosen  topKey
	first   int // row that is shown first
	detail  *topDetail
}

type topKey struct{ owner, id string }

// topRow is a sandbox, with its network traffic in bytes a second.
type topRow struct {
	hutch.Stats
	traffic float64
}

func (r *topRow) key() topKey { return topKey{r.Owner, r.SandboxID} }

// topDetail is the view of one sandbox: its processes, and the logs of one process.
type topDetail struct {
	processes []hutch.Process
	problem   string
	chosen    int
	logs      []string // newest last; nil when they are not shown
	title     string   // title of the logs
}

// styles of a line.
const (
	plainLine = iota
	boldLine
	inverseLine
)

type topLine struct {
	text  string
	style int
}

// topColumn is one column of the table.
type topColumn struct {
	name, title string
	key         byte
	width       int
	left        bool // aligned to the left
	keep        int  // the columns with the lowest number are dropped first when the terminal is narrow
	text        func(*topView, *topRow) string
	compare     func(a, b *topRow) int
}

var topColumns = []topColumn{
	{"sandbox", "SANDBOX", 's', 20, true, 100, func(_ *topView, r *topRow) string { return r.SandboxID }, func(a, b *topRow) int { return strings.Compare(a.SandboxID, b.SandboxID) }},
	{"owner", "OWNER", 'o', 15, true, 1, func(_ *topView, r *topRow) string { return r.Owner }, func(a, b *topRow) int { return strings.Compare(a.Owner, b.Owner) }},
	{"state", "STATE", 't', 10, true, 70, func(_ *topView, r *topRow) string { return r.state() }, func(a, b *topRow) int { return strings.Compare(a.state(), b.state()) }},
	{"cpu", "CPU%", 'c', 6, false, 99, func(_ *topView, r *topRow) string { return fmt.Sprintf("%.1f", r.CPU) }, func(a, b *topRow) int { return cmp.Compare(b.CPU, a.CPU) }},
	{"memory", "MEMORY", 'm', 9, false, 90, func(_ *topView, r *topRow) string { return inMiB(r.Memory) }, func(a, b *topRow) int { return cmp.Compare(b.Memory, a.Memory) }},
	{"limit", "OF", 'l', 9, false, 10, func(_ *topView, r *topRow) string { return inMiB(float64(r.MemoryLimit)) }, func(a, b *topRow) int { return cmp.Compare(b.MemoryLimit, a.MemoryLimit) }},
	{"disk", "DISK", 'd', 9, false, 40, func(_ *topView, r *topRow) string { return inMiB(r.Disk) }, func(a, b *topRow) int { return cmp.Compare(b.Disk, a.Disk) }},
	{"network", "NET/S", 'n', 9, false, 50, func(_ *topView, r *topRow) string { return size(int64(r.traffic)) }, func(a, b *topRow) int { return cmp.Compare(b.traffic, a.traffic) }},
	{"processes", "PIDS", 'p', 5, false, 30, func(_ *topView, r *topRow) string { return fmt.Sprint(r.PIDs) }, func(a, b *topRow) int { return cmp.Compare(b.PIDs, a.PIDs) }},
	{"age", "AGE", 'a', 5, false, 20, func(v *topView, r *topRow) string { return shortAge(v.at.Sub(r.CreatedAt)) }, func(a, b *topRow) int { return a.CreatedAt.Compare(b.CreatedAt) }},
	{"cost", "COST", '$', 9, false, 60, func(_ *topView, r *topRow) string { return fmt.Sprintf("%.4f", r.Cost) }, func(a, b *topRow) int { return cmp.Compare(b.Cost, a.Cost) }},
}

func newTopView() *topView { return &topView{rows: map[topKey]*topRow{}} }

// sortBy sorts by the column of a name, and reports whether it exists.
func (v *topView) sortBy(name string) bool {
	i := slices.IndexFunc(topColumns, func(c topColumn) bool { return c.name == name })
	if i >= 0 {
		v.column = i
	}
	return i >= 0
}

// state returns the status, or says that a sandbox does not answer although it should.
func (r *topRow) state() string {
	if r.Status == hutch.Running && r.Health == hutch.Unhealthy {
		return "unhealthy"
	}
	return string(r.Status)
}

// apply applies a report.
func (v *topView) apply(r hutch.StatsReport) {
	before, passed := v.rows, r.Time.Sub(v.read).Seconds()
	v.at, v.problem = r.Time, ""
	if r.Full {
		v.rows = make(map[topKey]*topRow, len(r.Sandboxes))
	}
	if !r.Partial {
		v.read = r.Time
		for _, row := range v.rows {
			row.traffic = 0 // until this report gives another value
		}
	}
	for _, s := range r.Sandboxes {
		row := &topRow{Stats: s}
		switch old := before[row.key()]; {
		case old == nil:
		case r.Partial:
			row.traffic = old.traffic
		case passed > 0:
			row.traffic = max(0, float64(s.NetworkSent+s.NetworkReceived-old.NetworkSent-old.NetworkReceived)/passed)
		}
		if v.rows[row.key()] = row; s.Status == hutch.Destroyed {
			delete(v.rows, row.key())
		}
	}
}

// sorted returns the rows in their order.
func (v *topView) sorted() []*topRow {
	rows := make([]*topRow, 0, len(v.rows))
	for _, r := range v.rows {
		rows = append(rows, r)
	}
	compare := topColumns[v.column].compare
	slices.SortFunc(rows, func(a, b *topRow) int {
		order := compare(a, b)
		if v.reverse {
			order = -order
		}
		return cmp.Or(order, strings.Compare(a.SandboxID, b.SandboxID), strings.Compare(a.Owner, b.Owner))
	})
	return rows
}

// columns returns the columns that fit into a width and have values. The first column gets the remaining width.
func (v *topView) columns(width int) []topColumn {
	owners, cost := map[string]bool{}, false
	for _, r := range v.rows {
		owners[r.Owner] = true
		cost = cost || r.Cost > 0
	}
	columns := slices.DeleteFunc(slices.Clone(topColumns), func(c topColumn) bool {
		return c.name == "owner" && len(owners) < 2 || c.name == "cost" && !cost
	})
	wide := func() (sum int) {
		for _, c := range columns {
			sum += c.width + 1
		}
		return sum - 1
	}
	for len(columns) > 1 && wide() > width {
		least := slices.MinFunc(columns, func(a, b topColumn) int { return cmp.Compare(a.keep, b.keep) })
		columns = slices.DeleteFunc(columns, func(c topColumn) bool { return c.name == least.name })
	}
	columns[0].width = min(columns[0].width+max(0, width-wide()), hutch.MaxID)
	return columns
}

// lines returns the whole screen.
func (v *topView) lines(width, height int) []topLine {
	var lines []topLine
	if v.detail != nil {
		lines = v.detailLines(width, height)
	} else {
		lines = v.tableLines(width, height)
	}
	for i := range lines {
		lines[i].text = fit(text.Line(lines[i].text), width, true)
	}
	return lines[:min(len(lines), max(height, 0))]
}

func (v *topView) tableLines(width, height int) []topLine {
	rows := v.sorted()
	lines := []topLine{{v.summary(rows), boldLine}}
	columns := v.columns(width)
	head := make([]string, len(columns))
	for i, c := range columns {
		head[i] = fit(c.title, c.width, c.left)
	}
	lines = append(lines, topLine{strings.Join(head, " "), inverseLine})
	space := max(height-len(lines)-1, 1)
	v.scroll(rows, space)
	for _, r := range rows[v.first:min(len(rows), v.first+space)] {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = fit(text.Line(c.text(v, r)), c.width, c.left)
		}
		style := plainLine
		if r.key() == v.chosen {
			style = inverseLine
		}
		lines = append(lines, topLine{strings.Join(cells, " "), style})
	}
	return addFooter(lines, height, "sort: "+topColumns[v.column].name+"   c m d n p a s t $ sort   r reverse   ↑↓ Return details   q end")
}

// addFooter puts a line at the bottom.
func addFooter(lines []topLine, height int, line string) []topLine {
	for len(lines) < height-1 {
		lines = append(lines, topLine{})
	}
	return append(lines, topLine{line, plainLine})
}

// summary returns the first line.
func (v *topView) summary(rows []*topRow) string {
	if v.problem != "" {
		return "hutch top: " + v.problem
	}
	awake, cpu, memory := 0, 0.0, 0.0
	for _, r := range rows {
		if r.Status == hutch.Running || r.Status == hutch.Paused {
			awake++
		}
		cpu, memory = cpu+r.CPU, memory+r.Memory
	}
	return fmt.Sprintf("%s   %d sandboxes, %d awake   CPU %.0f%%   memory %s", v.at.Local().Format(time.TimeOnly), len(rows), awake, cpu, inMiB(memory))
}

// scroll keeps the selected row visible.
func (v *topView) scroll(rows []*topRow, space int) {
	at := v.position(rows)
	if at >= 0 && at < v.first {
		v.first = at
	}
	if at >= v.first+space {
		v.first = at - space + 1
	}
	v.first = max(0, min(v.first, len(rows)-space))
}

func (v *topView) position(rows []*topRow) int {
	return slices.IndexFunc(rows, func(r *topRow) bool { return r.key() == v.chosen })
}

// move chooses another row.
func (v *topView) move(by int) {
	rows := v.sorted()
	if len(rows) == 0 {
		return
	}
	at := v.position(rows)
	if at < 0 && by > 0 {
		by--
	}
	v.chosen = rows[min(max(max(at, 0)+by, 0), len(rows)-1)].key()
}

// detailLines shows one sandbox.
func (v *topView) detailLines(width, height int) []topLine {
	d := v.detail
	r := v.rows[v.chosen]
	if r == nil {
		return addFooter([]topLine{{"the sandbox " + v.chosen.id + " is gone", boldLine}}, height, "q back")
	}
	lines := []topLine{
		{r.SandboxID + "   " + r.state() + "   " + r.Runtime + "   age " + shortAge(v.at.Sub(r.CreatedAt)), boldLine},
		{fmt.Sprintf("CPU %.1f%% of %.4g cores, %.1f s so far   memory %s of %s   disk %s of %s   %d processes and threads", r.CPU, r.CPULimit, r.CPUSeconds,
			inMiB(r.Memory), inMiB(float64(r.MemoryLimit)), inMiB(r.Disk), inMiB(float64(r.DiskLimit)), r.PIDs), plainLine},
		{fmt.Sprintf("network: sent %s, received %s, now %s/s", size(r.NetworkSent), size(r.NetworkReceived), size(int64(r.traffic))), plainLine},
	}
	if d.problem != "" {
		lines = append(lines, topLine{d.problem, plainLine})
	}
	if d.logs != nil {
		lines = append(lines, topLine{fit(d.title, width, true), inverseLine})
		space := max(height-len(lines)-1, 1)
		for _, l := range d.logs[max(0, len(d.logs)-space):] {
			lines = append(lines, topLine{l, plainLine})
		}
		return addFooter(lines, height, "q back")
	}
	lines = append(lines, topLine{fit(fmt.Sprintf("%-20s %-9s %8s %6s  %s", "PROCESS", "STATE", "PID", "AGE", "COMMAND"), width, true), inverseLine})
	for i, p := range d.processes {
		style := plainLine
		if i == d.chosen {
			style = inverseLine
		}
		lines = append(lines, topLine{text.Line(fmt.Sprintf("%s %s %8d %6s  %s", fit(cmp.Or(text.Line(p.Name), p.ID), 20, true), fit(state(p), 9, true), p.PID, shortAge(v.at.Sub(p.StartTime)), p.Command)), style})
	}
	return addFooter(lines[:min(len(lines), max(height-1, 1))], height, "↑↓ Return logs   q back")
}

// fit makes s exactly width runes wide.
func fit(s string, width int, left bool) string {
	n := utf8.RuneCountInString(s)
	switch {
	case width <= 0:
		return ""
	case n > width:
		return string([]rune(s)[:width-1]) + "…"
	case left:
		return s + strings.Repeat(" ", width-n)
	}
	return strings.Repeat(" ", width-n) + s
}

func inMiB(v float64) string { return size(int64(v * (1 << 20))) }

// shortAge returns a duration in one unit.
func shortAge(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(max(d, 0).Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
