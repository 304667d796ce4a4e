package wrap_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/wrap"
)

// broken panics in one verb, and refuses another one.
type broken struct{ hutch.Service }

func (broken) Stat(context.Context, string, string) (hutch.FileInfo, error) { panic("of a test") }

var errOther = errors.New("another")

func (broken) Signal(context.Context, string, string, int) error { return errOther }

// TestRecovering: the caller of a verb that panics gets an error. Other calls are not changed.
func TestRecovering(t *testing.T) {
	t.Parallel()
	told := errors.New("told")
	s := &wrap.Service{Next: broken{}, Hook: wrap.Recovering(func(_ context.Context, verb string, cause any, stack []byte) error {
		if verb != "Stat" || cause != "of a test" || !strings.Contains(string(stack), "broken") {
			t.Errorf("%s panics with %v at %s", verb, cause, stack)
		}
		return told
	})}
	if _, err := s.Stat(t.Context(), "box", "/"); err != told {
		t.Errorf("%v", err)
	}
	if err := s.Signal(t.Context(), "box", "p", 1); err != errOther {
		t.Errorf("%v", err)
	}
}
