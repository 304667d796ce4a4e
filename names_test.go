package hutch_test

import (
	"testing"

	"hutch"
)

func TestJoinNames(t *testing.T) {
	t.Parallel()
	for want, names := range map[string][]hutch.Scope{
		"": nil, "read": {"read"}, "read or exec": {"read", "exec"}, "read, exec or files": {"read", "exec", "files"},
	} {
		if got := hutch.JoinNames(names, "or"); got != want {
			t.Errorf("%v: %q, want %q", names, got, want)
		}
	}
}
