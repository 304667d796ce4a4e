package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"hutch"
	"hutch/internal/hutchtest/plot"
)

// scale has the numbers of sandboxes and of callers to measure with.
type scale struct {
	sandboxes []int
	callers   []int
	most      map[string]int // most sandboxes of a runtime, if limited
}

// scaling measures calls over MCP by the number of live sandboxes and of callers. The callers use all sandboxes in
// turn.
func (l *lab) scaling(ctx context.Context) (table, error) {
	head := []string{"sandboxes, by callers"}
	for _, n := range l.scale.callers {
		head = append(head, fmt.Sprint(n))
	}
	t := newTable(head...)
	callers := make([]*mcpClient, slices.Max(l.scale.callers))
	for i := range callers {
		callers[i] = newMCPClient(l.server.url, token)
		defer callers[i].close()
	}
	for _, f := range l.runtimes {
		chart, err := l.climb(ctx, f.runtime, callers, &t)
		if err == nil && l.plots != "" {
			err = chart.Save(l.plots)
		}
		if err != nil {
			return t, err
		}
	}
	t.note("Calls a second · p99 in ms. The baseline of a runtime was measured just before it.")
	return t, nil
}

// climb measures one runtime with more and more sandboxes.
func (l *lab) climb(ctx context.Context, runtime string, callers []*mcpClient, t *table) (c plot.Chart, err error) {
	c = plot.Chart{Name: "scaling-" + runtime, Title: runtime + ": exec of /bin/true over MCP, calls a second by callers", Logarithmic: true, X: l.scale.callers}
	bare := []float64{} // measured just before the sandboxes, for comparison
	for _, k := range l.scale.callers {
		var b tally
		b.press(ctx, fork, k, l.loadTime)
		bare = append(bare, b.rate())
	}
	c.Lines = append(c.Lines, plot.Line{Name: bareFork, Y: bare})
	t.row(append([]string{runtime + ": " + bareFork}, each(bare)...)...)
	var ids []string
	defer func() {
		for _, id := range ids {
			_, end := l.server.rest.Destroy(context.WithoutCancel(ctx), id, true)
			err = errors.Join(err, end)
		}
	}()
	for _, n := range l.scale.sandboxes {
		if most := l.scale.most[runtime]; most > 0 && n > most {
			break
		}
		for len(ids) < n {
			id := "scale-" + runtime + "-" + strconv.Itoa(len(ids))
			if _, err := l.server.rest.Create(ctx, hutch.CreateRequest{ID: id, Runtime: runtime, KeepAlive: true}); err != nil {
				return c, err
			}
			ids = append(ids, id)
		}
		cells, rates := []string{fmt.Sprintf("%s: %d", runtime, n)}, []float64{}
		for _, k := range l.scale.callers {
			rate, p99, err := l.callAll(ctx, callers[:k], ids)
			if err != nil {
				return c, err
			}
			cells, rates = append(cells, number(rate)+" · "+number(p99)), append(rates, rate)
		}
		t.row(cells...)
		c.Lines = append(c.Lines, plot.Line{Name: fmt.Sprint("sandboxes: ", n), Y: rates})
	}
	return c, nil
}

func each(figures []float64) (cells []string) {
	for _, v := range figures {
		cells = append(cells, number(v))
	}
	return cells
}

// callAll makes callers use the sandboxes in turn for a while.
func (l *lab) callAll(ctx context.Context, callers []*mcpClient, ids []string) (rate, p99 float64, err error) {
	var turn atomic.Int64
	took := make([][]time.Duration, len(callers))
	var t tally
	t.press(ctx, subject{call: func(ctx context.Context, k int) error {
		began := time.Now()
		err := callers[k].exec(ctx, ids[int(turn.Add(1))%len(ids)], program)
		took[k] = append(took[k], time.Since(began))
		return err
	}}, len(callers), l.loadTime)
	return t.rate(), ms(quantile(slices.Concat(took...), 0.99)), t.failure
}
