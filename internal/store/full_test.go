package store

import (
	"errors"
	"strings"
	"testing"

	"hutch"
)

func TestFullDisk(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Memory)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.db.ExecContext(t.Context(), "pragma max_page_count = 1"); err != nil {
		t.Fatal(err)
	}
	err = s.Put(t.Context(), Record{Key: "p", Env: map[string]string{"LARGE": strings.Repeat("x", 1<<20)}})
	if !errors.Is(err, hutch.Exhausted) || !strings.Contains(hutch.AsError(err).Message, "disk is full") {
		t.Errorf("it says %v", err)
	}
}
