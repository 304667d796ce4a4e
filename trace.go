package hutch

import (
	"context"
	"strings"
)

type traceKey struct{}

// WithTrace returns a context for calls that are part of a trace: traceparent
// is the header of that name as W3C Trace Context has it. What is none changes
// nothing. The client sends it, and commands have it as TRACEPARENT in their
// environment.
func WithTrace(ctx context.Context, traceparent string) context.Context {
	if !isTraceparent(traceparent) {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, traceparent)
}

// TraceOf is the traceparent of the calls of ctx, or empty.
func TraceOf(ctx context.Context) string {
	s, _ := ctx.Value(traceKey{}).(string)
	return s
}

// TraceID is the id of the trace that the calls of ctx are part of, or empty.
func TraceID(ctx context.Context) string {
	if s := TraceOf(ctx); s != "" {
		return s[3:35]
	}
	return ""
}

// isTraceparent holds for version 00: two digits of version, the id of the
// trace, that of the span, and flags. Neither id is zero.
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
