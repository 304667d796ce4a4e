package compat_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat"
	"hutch/internal/membudget"
)

// TestManyValues: a short body that becomes much memory is refused, and a long text is not.
func TestManyValues(t *testing.T) {
	t.Parallel()
	read := func(body string) error {
		account, end := membudget.New(64<<20, 64<<20).Open("ada")
		defer end()
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		var v struct {
			List []struct{ A, B string }
			Text string
		}
		return compat.ReadJSON(httptest.NewRecorder(), r.WithContext(caller.With(r.Context(), caller.Caller{Budget: account})), &v)
	}
	if err := read(`{"list":[{}` + strings.Repeat(",{}", 1<<20) + `]}`); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("a million structs: %v", err)
	}
	if err := read(`{"text":"` + strings.Repeat(",", 7<<20) + `"}`); err != nil {
		t.Errorf("a long text: %v", err)
	}
}

// TestEncodeLongText: an answer that exceeds the memory budget is refused before it is made. Output of a program can be
// six times as long in JSON. The test is not parallel, because it measures what the process allocates.
func TestEncodeLongText(t *testing.T) {
	account, end := membudget.New(64<<20, 64<<20).Open("ada")
	defer end()
	ctx := caller.With(t.Context(), caller.Caller{Budget: account})
	answer := map[string]any{"data": &struct{ Stdout string }{strings.Repeat("\x00", 16<<20)}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := compat.Encode(ctx, answer)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, hutch.Exhausted) || n > 8<<20 {
		t.Errorf("%v, and %d MiB were allocated", err, n>>20)
	}
	for _, v := range []any{nil, "a", []any{1, nil, "b"}, map[string]any{"a": json.RawMessage("[1]")}, time.Now(), struct{ A *int }{}} {
		if b, err := compat.Encode(ctx, v); err != nil || !json.Valid(b) {
			t.Errorf("%v: %s, %v", v, b, err)
		}
	}
}
