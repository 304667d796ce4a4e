package guard

import (
	"cmp"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/problem"
)

// attributes returns the log's attributes of a request's caller.
func attributes(c caller.Caller, token string) (list []slog.Attr) {
	for _, a := range []slog.Attr{slog.String("request", c.Origin.Request), slog.String("clientRequest", c.Origin.ClientRequest), slog.String("token", token), slog.String("trace", c.TraceID())} {
		if a.Value.String() != "" {
			list = append(list, a)
		}
	}
	return list
}

// record gives each request an id, a log line and, if it panics, an answer. The line has the path without the query,
// which can hold secrets.
func (g *guard) record(next func(*recorder, *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		from := caller.Origin{Remote: r.RemoteAddr, Request: hutch.NewID("rq"), ClientRequest: clientID(r)}
		ctx := caller.With(r.Context(), caller.Caller{Origin: from})
		ctx = caller.WithTrace(ctx, r.Header.Get("Traceparent"))
		w.Header().Set("X-Request-Id", cmp.Or(from.ClientRequest, from.Request))
		rec := &recorder{ResponseWriter: w}
		defer func() {
			failed := recover()
			if failed != nil && failed != http.ErrAbortHandler {
				g.log.Error("panic", "request", from.Request, "err", failed, "stack", string(debug.Stack()))
				if rec.status == 0 {
					problem.Write(rec, hutch.Errorf(hutch.Internal, "internal error; the server's log has the cause under %s", from.Request))
					failed = nil
				}
			}
			g.log.LogAttrs(ctx, level(r), "request", append(attributes(caller.From(ctx), rec.token),
				slog.String("method", r.Method), slog.String("path", r.URL.Path),
				slog.Int("status", rec.status), slog.Int64("bytes", rec.bytes),
				slog.Duration("took", time.Since(began)), slog.String("remote", r.RemoteAddr))...)
			if failed != nil {
				panic(http.ErrAbortHandler) // too late for a status: the client must see a broken answer
			}
		}()
		next(rec, r.WithContext(ctx))
	})
}

// level returns the log level of a request: a lower one for health checks, to keep them out of the log.
func level(r *http.Request) slog.Level {
	if open(r) {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// clientID returns the id that the client gave the request, if it is safe to log. Clients can give the same id to many
// requests.
func clientID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	fit := func(c rune) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("-_.", c)
	}
	if len(id) > 64 || strings.ContainsFunc(id, func(c rune) bool { return !fit(c) }) {
		return ""
	}
	return id
}

// recorder records the status and size of an answer, and its caller.
type recorder struct {
	http.ResponseWriter
	token  string // name of the caller's token; empty until the caller is known
	status int
	bytes  int64
}

// Unwrap lets http.ResponseController find the underlying writer.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(b)
	r.bytes += int64(n)
	return n, err
}

// Flush implements http.Flusher, because some callers use a type assertion for it.
func (r *recorder) Flush() {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	http.NewResponseController(r.ResponseWriter).Flush()
}
