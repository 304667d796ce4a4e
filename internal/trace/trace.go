// Package trace makes a span of every call, and sends spans by OTLP over HTTP.
//
// A call with a traceparent is part of that trace. The span of the call is the parent of the calls that it causes, and of
// the command in the sandbox.
package trace

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/caller"
)

// Options are the settings of a tracer.
type Options struct {
	// Endpoint is the URL of the OTLP receiver, such as
	// "http://localhost:4318"; spans go to /v1/traces below it.
	Endpoint string
	Headers  map[string]string // sent with every request to Endpoint
	Service  string            // name of this service; default "hutch"
	Version  string
}

// Tracer is an [audit.Observer].
type Tracer struct {
	provider *trace.TracerProvider
	tracer   oteltrace.Tracer
	format   propagation.TraceContext
}

// New returns a tracer that sends its spans in the background. Close ends it.
func New(ctx context.Context, opt Options) (*Tracer, error) {
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(opt.Endpoint+"/v1/traces"), otlptracehttp.WithHeaders(opt.Headers))
	if err != nil {
		return nil, fmt.Errorf("trace to %s: %w", opt.Endpoint, err)
	}
	name := opt.Service
	if name == "" {
		name = "hutch"
	}
	p := trace.NewTracerProvider(
		trace.WithBatcher(exporter), // bounded: it drops spans when the receiver does not keep up
		trace.WithResource(resource.NewSchemaless(attribute.String("service.name", name), attribute.String("service.version", opt.Version))))
	return &Tracer{provider: p, tracer: p.Tracer("hutch")}, nil
}

// Close sends the remaining spans, for as long as ctx allows.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

const header = "traceparent"

// Begin implements audit.Observer.
func (t *Tracer) Begin(ctx context.Context, op audit.Operation) (context.Context, func(audit.Outcome), error) {
	parent := t.format.Extract(ctx, propagation.MapCarrier{header: caller.From(ctx).Trace})
	ctx, span := t.tracer.Start(parent, op.Verb, oteltrace.WithSpanKind(oteltrace.SpanKindServer), oteltrace.WithAttributes(attributes(op)...))
	carrier := propagation.MapCarrier{}
	t.format.Inject(ctx, carrier)
	return caller.WithTrace(ctx, carrier[header]), func(o audit.Outcome) {
		if o.Sandbox != "" {
			span.SetAttributes(attribute.String("hutch.sandbox", o.Sandbox))
		}
		span.SetAttributes(attribute.String("hutch.result", audit.ResultOf(o.Err)))
		if o.Err != nil {
			span.SetStatus(codes.Error, audit.Head(hutch.AsError(o.Err).Message, 256))
		}
		span.End()
	}, nil
}

func attributes(op audit.Operation) (list []attribute.KeyValue) {
	for _, a := range []attribute.KeyValue{
		attribute.String("hutch.sandbox", op.Sandbox), attribute.String("hutch.owner", op.Owner), attribute.String("hutch.token", op.TokenName),
		attribute.String("hutch.surface", op.Surface), attribute.String("hutch.request", op.Request),
	} {
		if a.Value.AsString() != "" {
			list = append(list, a)
		}
	}
	return list
}
