package problem_test

import (
	"errors"
	"net/http/httptest"
	"testing"

	"hutch"
	"hutch/internal/problem"
)

func TestEveryKindCrossesTheWire(t *testing.T) {
	kinds := []hutch.Kind{
		hutch.Invalid, hutch.Denied, hutch.NotFound, hutch.Conflict, hutch.Exhausted,
		hutch.Unsupported, hutch.Unavailable, hutch.Timeout, hutch.Internal,
	}
	seen := map[int]hutch.Kind{}
	for _, kind := range kinds {
		w := httptest.NewRecorder()
		problem.Write(w, hutch.Errorf(kind, "words").With("limit", "memory"))
		got := problem.Read(w.Code, w.Body.Bytes()).Err()
		if !errors.Is(got, kind) || got.Message != "words" || got.Data["limit"] != "memory" {
			t.Errorf("%s came back as %#v", kind, got)
		}
		if other, ok := seen[w.Code]; ok {
			t.Errorf("%s and %s share status %d", kind, other, w.Code)
		}
		seen[w.Code] = kind
	}
}

func TestCausesStayHome(t *testing.T) {
	w := httptest.NewRecorder()
	problem.Write(w, errors.New("open /secret/path"))
	if w.Code != 500 || hutch.KindOf(problem.Read(w.Code, w.Body.Bytes()).Err()) != hutch.Internal {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if d := problem.Read(w.Code, w.Body.Bytes()); d.Detail == "open /secret/path" {
		t.Fatal("the cause was shown")
	}
}

func TestRetryAfter(t *testing.T) {
	w := httptest.NewRecorder()
	problem.Write(w, hutch.Errorf(hutch.Exhausted, "slow down").With("retryAfter", 1.2))
	if got := w.Header().Get("Retry-After"); got != "2" {
		t.Fatalf("Retry-After %q", got)
	}
}

func TestForeignAnswers(t *testing.T) {
	for status, kind := range map[int]hutch.Kind{401: hutch.Denied, 404: hutch.NotFound, 418: hutch.Invalid, 502: hutch.Unavailable, 599: hutch.Internal} {
		if got := problem.Read(status, []byte("<html>nginx</html>")).Kind; got != kind {
			t.Errorf("%d is %s, not %s", status, got, kind)
		}
	}
}
