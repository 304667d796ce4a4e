package preview

import (
	"context"
	"net/http"
	"net/http/httptrace"
)

// finalOnly is a transport whose interim answers, such as 103 Early Hints, are dropped. net/http's proxy passes them on
// with a trace, in the goroutine that reads the connection to the sandbox. It then clears the header while the HTTP/2
// server may still be writing it. So a program that sends many interim answers would crash the daemon.
type finalOnly struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t finalOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.RoundTripper.RoundTrip(r.WithContext(untraced{r.Context()}))
}

// untraced is a context without its trace.
type untraced struct{ context.Context }

// Value implements context.Context.
func (c untraced) Value(key any) any {
	v := c.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok {
		return nil
	}
	return v
}
