package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/caller"
	"hutch/internal/datadir"
	"hutch/internal/fleet"
	"hutch/internal/history"
	"hutch/internal/metrics"
	"hutch/internal/problem"
	"hutch/internal/secret"
	"hutch/internal/timeline"
	"hutch/internal/trace"
)

// newLog returns a log in the configured format, with secrets redacted.
func (d *Daemon) newLog() *slog.Logger {
	to := secret.Writer(d.cfg.Log.To, d.redactor)
	opt := &slog.HandlerOptions{Level: d.cfg.Log.Level}
	if d.cfg.Log.JSON {
		return slog.New(slog.NewJSONHandler(to, opt))
	}
	return slog.New(slog.NewTextHandler(to, opt))
}

// requestLog returns the log of requests.
func (d *Daemon) requestLog() *slog.Logger {
	if d.cfg.Log.NoRequests {
		return slog.New(warnings{d.log.Handler()})
	}
	return d.log
}

// warnings passes on warnings and errors only.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

// openAudit opens the audit log and starts to remove old files.
func (d *Daemon) openAudit(ctx context.Context) (err error) {
	if d.audit, err = audit.Open(ctx, audit.Options{Dir: datadir.AuditLog(d.dir), Keep: d.cfg.Monitor.AuditKeep, Log: d.log}); err != nil {
		return err
	}
	d.onClose(d.audit.Close)
	d.runs(d.audit.Run)
	return nil
}

// openTimelines opens the timelines, which are kept for as long as the audit log.
func (d *Daemon) openTimelines(context.Context) (err error) {
	d.timeline, err = timeline.Open(timeline.Options{Dir: datadir.Timelines(d.dir), Keep: d.cfg.Monitor.AuditKeep, Redact: d.redactFor, Log: d.log})
	if err == nil {
		d.onClose(d.timeline.Close)
		d.runs(d.timeline.Run)
	}
	return err
}

// openHistory opens the usage history of sandboxes. A server with only conversations has no API to show it.
func (d *Daemon) openHistory(context.Context) error {
	if d.cfg.Conversations.Only {
		return nil
	}
	past := history.New(history.Options{Accounts: d.engine, Sandbox: d.engine.Sandbox, File: datadir.Metrics(d.dir), Log: d.log})
	d.runs(past.Run)
	d.history = past
	return nil
}

// redactFor removes the secrets of an owner from a text that the owner reads.
func (d *Daemon) redactFor(owner, text string) string {
	return d.vault.Redactor(caller.WithOwner(context.Background(), caller.Owner{ID: owner})).String(text)
}

// openMonitors makes the observers of every call. Traces come first, so that the other observers know the trace's id.
func (d *Daemon) openMonitors(ctx context.Context) error {
	d.metrics = metrics.New(metrics.Options{
		Version: d.cfg.Version.Version, Usage: d.engine.Usage, Pool: d.engine.Pool, Fleet: d.reportFleet,
		Traffic: d.traffic, Answers: d.newAnswers(), Log: d.log,
	})
	d.observers = audit.Observers{d.metrics, d.audit}
	if d.cfg.Monitor.Trace.Endpoint != "" {
		t, err := trace.New(ctx, d.cfg.Monitor.Trace)
		if err != nil {
			return err
		}
		d.observers = append(audit.Observers{t}, d.observers...)
		d.onClose(func() error { return d.closeTraces(t) })
	}
	close(d.watched)
	return d.openMetrics(ctx)
}

// reportFleet returns the metrics of the fleet; false if this server is not a node.
func (d *Daemon) reportFleet(ctx context.Context) (m metrics.Fleet, ok bool, err error) {
	f := d.joined.Load()
	if f == nil {
		return m, false, nil
	}
	r, err := f.Report(ctx)
	m = metrics.Fleet{
		Node: r.Node, Nodes: r.Nodes, Lease: r.Lease, Held: r.Held, Stuck: r.Stuck, InBucket: r.InBucket, Renewals: metrics.Outcomes(r.Renewals),
	}
	for _, what := range fleet.Transfers {
		m.Carried = append(m.Carried, metrics.Carried{What: string(what), Outcomes: metrics.Outcomes(r.Carried[what])})
	}
	return m, true, err
}

// closeTraces sends the last traces. If the receiver does not accept them, that is not an error of the daemon.
func (d *Daemon) closeTraces(t *trace.Tracer) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := t.Close(ctx); err != nil {
		d.log.Warn("the last traces were not sent", "err", err)
	}
	return nil
}

// openMetrics serves the metrics at an address of their own, if one was given.
func (d *Daemon) openMetrics(ctx context.Context) error {
	if d.cfg.Monitor.Metrics == "" {
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", d.cfg.Monitor.Metrics)
	if err != nil {
		return hutch.Errorf(hutch.Unavailable, "%v: choose another address with --metrics-listen", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", d.metrics)
	hs := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	ended := make(chan error, 1)
	go func() { ended <- hs.Serve(l) }()
	d.onClose(func() error {
		hs.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	d.log.Info("metrics", "address", l.Addr().String())
	return nil
}

// monitorRoutes are the routes for monitoring.
func (d *Daemon) monitorRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusOK, map[string]any{"status": "healthy", "ok": true, "timestamp": time.Now().UTC()})
	})
	mux.HandleFunc("GET /ready", d.ready)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if err := d.policy.Metrics(r.Context()); err != nil {
			problem.Write(w, err)
			return
		}
		d.metrics.ServeHTTP(w, r)
	})
}
