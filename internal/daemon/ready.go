package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"hutch/internal/host"
)

// ready answers whether the daemon can do its work. Anyone can ask, so the answer only names the parts that fail; the
// log has the details.
func (d *Daemon) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	wrong := []string{}
	for _, c := range []struct {
		name  string
		check func(context.Context) error
	}{
		{"shutting down", func(context.Context) error { return context.Cause(d.life) }},
		{"store", d.storeReady.ask},
		{"audit", func(context.Context) error { return d.audit.Ready() }},
		{"runtime", d.runtimeReady.ask},
	} {
		if err := c.check(ctx); err != nil {
			wrong = append(wrong, c.name)
			d.log.Warn("not ready", "what", c.name, "err", err)
		}
	}
	if len(wrong) > 0 {
		answerJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "not ready", "wrong": wrong})
		return
	}
	answerJSON(w, http.StatusOK, map[string]any{"status": "ready"})
}

func answerJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

func (d *Daemon) checkStore(ctx context.Context) error {
	return d.store.Ready(ctx)
}

func (d *Daemon) checkRuntime(ctx context.Context) error {
	if report := d.runtimes[0].Check(ctx); !report.OK {
		return errors.New(host.Problem(report))
	}
	return nil
}

// check keeps the outcome of an expensive check for a while, so that asking often
// costs little.
type check struct {
	every time.Duration
	do    func(context.Context) error

	mu  sync.Mutex
	at  time.Time
	err error
}

func (c *check) ask(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) > c.every {
		c.err, c.at = c.do(ctx), time.Now()
	}
	return c.err
}
