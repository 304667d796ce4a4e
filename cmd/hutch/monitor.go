package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/metrics"
	"hutch/internal/problem"
	"hutch/internal/trace"
)

// monitorConfig is what can be set of how a server is watched.
type monitorConfig struct {
	auditKeep     time.Duration
	metricsListen string
	logFormat     string
	prices        map[string]string
	trace         trace.Options // from the environment, as OpenTelemetry has it
}

func (m *monitorConfig) flags(f *pflag.FlagSet) {
	durationVar(f, &m.auditKeep, "audit-keep", "", 30*24*time.Hour, "how long the audit log is kept; negative for ever")
	f.StringVar(&m.metricsListen, "metrics-listen", "", "another address and port that serves /metrics to anyone, e.g. 127.0.0.1:9464")
	f.StringVar(&m.logFormat, "log-format", "text", "format of the log: text or json")
	f.StringToStringVar(&m.prices, "prices", nil, "what use costs: cpu (a second of a core), memory (a GiB for a second), execution, network (a GiB sent or received), wall (a second of a sandbox), e.g. cpu=0.000014,memory=0.0000045")
}

// logger writes to w in the format that was asked for.
func (m *monitorConfig) logger(w io.Writer, level slog.Level) (*slog.Logger, error) {
	opt := &slog.HandlerOptions{Level: level}
	switch m.logFormat {
	case "", "text":
		return slog.New(slog.NewTextHandler(w, opt)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opt)), nil
	}
	return nil, usageError{fmt.Errorf("there is no log format %q: use text or json", m.logFormat)}
}

func (m *monitorConfig) price() (p hutch.Prices, err error) {
	names := map[string]*float64{"cpu": &p.CPUSecond, "memory": &p.MemoryGBSecond, "execution": &p.Execution, "wall": &p.WallSecond, "network": &p.NetworkGB}
	for name, value := range m.prices {
		at := names[name]
		if at == nil {
			return p, usageError{fmt.Errorf("there is no price of %q: use cpu, memory, execution, network or wall", name)}
		}
		if *at, err = strconv.ParseFloat(value, 64); err != nil || !(*at >= 0 && *at < 1e9) {
			return p, usageError{fmt.Errorf("the price of %s is %q: give a number", name, value)}
		}
	}
	return p, nil
}

// traceEnv reads what OpenTelemetry calls its exporter's settings.
func traceEnv() trace.Options {
	opt := trace.Options{
		Endpoint: strings.TrimRight(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "/"), Service: os.Getenv("OTEL_SERVICE_NAME"),
		Version: version, Headers: map[string]string{},
	}
	for pair := range strings.SplitSeq(os.Getenv("OTEL_EXPORTER_OTLP_HEADERS"), ",") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			if plain, err := url.QueryUnescape(value); err == nil {
				value = plain
			}
			opt.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return opt
}

// openAudit opens the audit log, and begins to keep it.
func (s *server) openAudit(ctx context.Context) (err error) {
	if s.audit, err = audit.Open(ctx, audit.Options{Dir: auditDir(s.dir), Keep: s.monitor.auditKeep, Log: s.log}); err != nil {
		return err
	}
	s.undo = append(s.undo, s.audit.Close)
	s.runs(s.audit.Run)
	return nil
}

func auditDir(server string) string { return filepath.Join(server, "audit") }

// runs runs something beside the server, until that closes.
func (s *server) runs(do func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { do(ctx) })
	s.undo = append(s.undo, func() error { cancel(); wg.Wait(); return nil })
}

// openMonitors makes what is told of every call: traces first, so that the
// others know theirs.
func (s *server) openMonitors(ctx context.Context) error {
	s.metrics = metrics.New(metrics.Options{Version: version, Usage: s.engine.Usage, Pool: s.engine.Pool, Traffic: s.traffic, Log: s.log})
	s.observers = audit.Observers{s.metrics, s.audit}
	if s.monitor.trace.Endpoint != "" {
		t, err := trace.New(ctx, s.monitor.trace)
		if err != nil {
			return err
		}
		s.observers = append(audit.Observers{t}, s.observers...)
		s.undo = append(s.undo, func() error { return s.endTraces(t) })
	}
	close(s.watched)
	return s.openMetrics(ctx)
}

// endTraces sends the last ones; that nobody takes them is no failure of ours.
func (s *server) endTraces(t *trace.Tracer) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := t.Close(ctx); err != nil {
		s.log.Warn("the last traces were not sent", "err", err)
	}
	return nil
}

// openMetrics serves the metrics at an address of their own, if one was given.
func (s *server) openMetrics(ctx context.Context) error {
	if s.monitor.metricsListen == "" {
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.monitor.metricsListen)
	if err != nil {
		return hutch.Errorf(hutch.Unavailable, "%v: choose another address with --metrics-listen", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics)
	hs := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	ended := make(chan error, 1)
	go func() { ended <- hs.Serve(l) }()
	s.undo = append(s.undo, func() error {
		hs.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	s.log.Info("metrics", "address", l.Addr().String())
	return nil
}

// monitorRoutes serve what monitors ask for.
func (s *server) monitorRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusOK, map[string]any{"status": "ok"})
	})
	mux.HandleFunc("GET /ready", s.ready)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if err := s.policy.Metrics(r.Context()); err != nil {
			problem.Write(w, err)
			return
		}
		s.metrics.ServeHTTP(w, r)
	})
}

// ready tells whether the server can do its work. Anyone may ask, so the answer
// names what is wrong and no more; the log has the rest.
func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	wrong := []string{}
	for _, c := range []struct {
		name  string
		check func(context.Context) error
	}{
		{"shutting down", func(context.Context) error { return context.Cause(s.life) }},
		{"store", s.storeReady.ask},
		{"audit", func(context.Context) error { return s.audit.Ready() }},
		{"runtime", s.runtimeReady.ask},
	} {
		if err := c.check(ctx); err != nil {
			wrong = append(wrong, c.name)
			s.log.Warn("not ready", "what", c.name, "err", err)
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

func (s *server) checkStore(ctx context.Context) error {
	return s.store.Shelf("ready").Put(ctx, "at", []byte(time.Now().UTC().Format(time.RFC3339)))
}

func (s *server) checkRuntime(ctx context.Context) error {
	if report := s.runtimes[0].Check(ctx); !report.OK {
		return errors.New(worst(report))
	}
	return nil
}

// check remembers the outcome of a check that costs something for a while, so
// that asking often costs little.
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
