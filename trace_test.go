package hutch_test

import (
	"testing"

	"hutch"
)

func TestTraceparent(t *testing.T) {
	t.Parallel()
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := hutch.WithTrace(t.Context(), good)
	if hutch.TraceOf(ctx) != good {
		t.Errorf("%q", hutch.TraceOf(ctx))
	}
	for _, bad := range []string{
		"", good + "0", good[:54], "01" + good[2:], "00-00000000000000000000000000000000-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319\n-b7ad6b7169203331-01",
	} {
		if got := hutch.TraceOf(hutch.WithTrace(t.Context(), bad)); got != "" {
			t.Errorf("%q is taken for a traceparent", bad)
		}
		if got := hutch.TraceOf(hutch.WithTrace(ctx, bad)); got != good {
			t.Errorf("%q changes the trace to %q", bad, got)
		}
	}
}
