package hutch

import (
	"context"
	"strings"
)

type traceKey struct{}

// WithTrace returns a context for calls that are part of a trace. traceparent is the header of W3C Trace Context; an
// invalid one is ignored. The client sends the header to the server, and commands have it as TRACEPARENT in their
// environment.
func WithTrace(ctx context.Context, traceparent string) context.Context {
	if !isTraceparent(traceparent) {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, traceparent)
}

// TraceOf returns the traceparent of ctx, or "".
func TraceOf(ctx context.Context) string {
	s, _ := ctx.Value(traceKey{}).(string)
	return s
}

// isTraceparent reports whether s is a header of version 00: two digits of version, the trace id, the span id, and
// flags. Neither id is zero.
func isTraceparent(s string) bool {
	if len(s) != 55 || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return false
	}
	for _, part := range []string{s[3:35], s[36:52], s[53:]} {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return false
		}
	}
	return strings.Trim(s[3:35], "0") != "" && strings.Trim(s[36:52], "0") != ""
}
