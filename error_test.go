package hutch_test

import (
	"encoding/json"
	"testing"

	"hutch"
)

// An error is about the smallest thing that it names, also after its data have
// crossed a wire.
func TestAbout(t *testing.T) {
	base := hutch.Errorf(hutch.NotFound, "gone")
	for _, c := range []struct {
		err  *hutch.Error
		what hutch.Subject
		name string
	}{
		{base, "", ""},
		{base.With("limit", "memory"), "", ""},
		{base.Naming(hutch.AboutSandbox, "a"), hutch.AboutSandbox, "a"},
		{base.Naming(hutch.AboutSandbox, "a").Naming(hutch.AboutPort, 8000), hutch.AboutPort, "8000"},
		{base.Naming(hutch.AboutProcess, "p").Naming(hutch.AboutSandbox, "a"), hutch.AboutProcess, "p"},
		{base.Naming(hutch.AboutFile, "/tmp/x").With("field", "path"), hutch.AboutFile, "/tmp/x"},
		{base.With("field", "command"), hutch.AboutField, "command"},
	} {
		crossed := *c.err
		b, err := json.Marshal(c.err.Data)
		if err == nil {
			crossed.Data = nil
			err = json.Unmarshal(b, &crossed.Data)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range []*hutch.Error{c.err, &crossed} {
			if what, name := e.About(); what != c.what || name != c.name {
				t.Errorf("%v is about %q %q, not %q %q", e.Data, what, name, c.what, c.name)
			}
		}
	}
	if base.Data != nil {
		t.Errorf("the first error was changed: %v", base.Data)
	}
}

func TestFactsOfAnError(t *testing.T) {
	e := hutch.Errorf(hutch.Exhausted, "no room")
	if after, ok := e.RetryAfter(); ok || e.Limit() != "" {
		t.Errorf("nothing was said: %d, %q", after, e.Limit())
	}
	e = e.With("limit", "disk").With("retryAfter", 3)
	if after, ok := e.RetryAfter(); !ok || after != 3 || e.Limit() != "disk" {
		t.Errorf("%d, %t, %q", after, ok, e.Limit())
	}
}
