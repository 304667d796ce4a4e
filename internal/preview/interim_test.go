package preview

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"testing"
)

type asks func(*http.Request) (*http.Response, error)

func (f asks) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type someKey struct{}

func TestFinalOnly(t *testing.T) {
	t.Parallel()
	ctx := httptrace.WithClientTrace(context.WithValue(t.Context(), someKey{}, "kept"), &httptrace.ClientTrace{GotFirstResponseByte: func() {}})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = finalOnly{asks(func(r *http.Request) (*http.Response, error) {
		if httptrace.ContextClientTrace(r.Context()) != nil {
			t.Error("interim answers would be passed on")
		}
		if r.Context().Value(someKey{}) != "kept" {
			t.Error("the context lost a value")
		}
		return nil, http.ErrAbortHandler
	})}.RoundTrip(r)
	if err != http.ErrAbortHandler {
		t.Error(err)
	}
}
