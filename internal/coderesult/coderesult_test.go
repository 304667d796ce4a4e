package coderesult

import (
	"fmt"
	"hutch/internal/headtail"
	"testing"

	"hutch"
)

func TestResultsAreBounded(t *testing.T) {
	var handed int
	r := New(headtail.New(0, nil), func(int) bool { return true }, func(hutch.RunEvent) error { handed++; return nil })
	for range maxResults + 5 {
		if err := r.Message([]byte(`{"result":{"data":{"text/plain":"x"}}}`)); err != nil {
			t.Fatal(err)
		}
	}
	if res := r.Result(); len(res.Results) != maxResults || !res.Truncated || handed != maxResults+5 {
		t.Errorf("%d results, truncated %v, %d handed on", len(res.Results), res.Truncated, handed)
	}
}

func TestNoMemoryForResults(t *testing.T) {
	r := New(headtail.New(0, nil), func(int) bool { return false }, nil)
	r.Message([]byte(`{"result":{"data":{"text/plain":"x"}}}`))
	if res := r.Result(); len(res.Results) != 0 || !res.Truncated {
		t.Errorf("%+v", res)
	}
}

// User code can send anything as a message.
func TestForgedMessages(t *testing.T) {
	r := New(headtail.New(0, nil), func(int) bool { return true }, nil)
	for _, m := range []string{"", "{", "[]", "null", fmt.Sprintf("%q", "text")} {
		if err := r.Message([]byte(m)); err != nil {
			t.Errorf("%q: %v", m, err)
		}
	}
	if res := r.Result(); len(res.Results) != 0 || res.Error != nil || res.Truncated {
		t.Errorf("%+v", res)
	}
}
