package guard

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"hutch"
	"hutch/internal/auth"
	"hutch/internal/problem"
)

type requestKey struct{}

// request holds what the log says about a request.
type request struct {
	id     string // of ours, which no other request has
	client string // the id that the client gave, if it is fit for a log
	token  string // its name; empty until the caller is known
}

// shown is the id that the client gets.
func (r *request) shown() string { return cmp.Or(r.client, r.id) }

func requestOf(ctx context.Context) *request {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r
	}
	return &request{}
}

// RequestID is the id of the request that ctx belongs to, which no other request
// has: the one in the log and in the audit log.
func RequestID(ctx context.Context) string { return requestOf(ctx).id }

// sign records the caller of ctx's request.
func sign(ctx context.Context, who *auth.Principal) { requestOf(ctx).token = who.Name }

// Attributes returns the log attributes of ctx's request: its id, the name of its token, and its trace id.
func Attributes(ctx context.Context) (list []slog.Attr) {
	r := requestOf(ctx)
	for _, a := range []slog.Attr{slog.String("request", r.id), slog.String("clientRequest", r.client), slog.String("token", r.token), slog.String("trace", hutch.TraceID(ctx))} {
		if a.Value.String() != "" {
			list = append(list, a)
		}
	}
	return list
}

// record gives each request an id, a log line and, if it panics, an answer. The line has the path without the query,
// which can hold secrets.
func (g *guard) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, this := time.Now(), &request{id: hutch.NewID("rq"), client: clientID(r)}
		ctx := context.WithValue(r.Context(), requestKey{}, this)
		ctx = hutch.WithTrace(ctx, r.Header.Get("Traceparent"))
		w.Header().Set("X-Request-Id", this.shown())
		rec := &recorder{ResponseWriter: w}
		defer func() {
			failed := recover()
			if failed != nil && failed != http.ErrAbortHandler {
				g.log.Error("panic", "request", this.id, "err", failed, "stack", string(debug.Stack()))
				if rec.status == 0 {
					problem.Write(rec, hutch.Errorf(hutch.Internal, "internal error; the server's log has the cause under %s", this.id))
					failed = nil
				}
			}
			g.log.LogAttrs(ctx, level(r), "request", append(Attributes(ctx),
				slog.String("method", r.Method), slog.String("path", r.URL.Path),
				slog.Int("status", rec.status), slog.Int64("bytes", rec.bytes),
				slog.Duration("took", time.Since(began)), slog.String("remote", r.RemoteAddr))...)
			if failed != nil {
				panic(http.ErrAbortHandler) // too late for a status: the client must see a broken answer
			}
		}()
		next.ServeHTTP(rec, r.WithContext(ctx))
	})
}

// level keeps health checks out of the log.
func level(r *http.Request) slog.Level {
	if open(r) {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// clientID is the id that the client gave the request, if it is fit for a log. A
// client can give one id to many requests.
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

// recorder records the status and size of an answer.
type recorder struct {
	http.ResponseWriter
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

// Flush implements http.Flusher, which some callers ask for by type.
func (r *recorder) Flush() {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	http.NewResponseController(r.ResponseWriter).Flush()
}
