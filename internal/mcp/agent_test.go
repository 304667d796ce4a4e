package mcp

import (
	"strings"
	"testing"

	"hutch"
)

// TestTriedReply: tries are shown next to each other within the length of one answer, and the first successful one is
// the result.
func TestTriedReply(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("+x\n", maxShown)
	all := hutch.AgentTries{ID: "tries-x", Tries: []hutch.AgentTry{
		{Try: 1, Result: hutch.AgentResult{SandboxID: "sb-1", ExitCode: 3, Diff: long}},
		{Try: 2, Result: hutch.AgentResult{SandboxID: "sb-2", Success: true, Answer: "done", Diff: "+two\n", Files: 1, Added: 1}},
		{Try: 3, Result: hutch.AgentResult{SandboxID: "sb-3"}, Kind: hutch.Exhausted, Error: "the difference is too long"},
		{Try: 4, Result: hutch.AgentResult{SandboxID: "sb-4", Success: true, Diff: "\xff" + long}},
	}}
	got := triedReply(all)
	ran := got.data.(ranAgent)
	if ran.SandboxID != "sb-2" || !ran.Success || ran.Answer != "done" || len(ran.Tries) != 4 || !ran.Tries[0].Truncated || ran.Tries[1].Truncated || ran.Tries[2].Error == "" || !ran.Tries[3].Truncated {
		t.Errorf("%+.300v", ran)
	}
	for _, want := range []string{"try 1: failed with exit code 3 · session sb-1", "try 2: done · session sb-2", "try 3: session sb-3 · the difference is too long", "# try 2\n+two\n"} {
		if !strings.Contains(got.text, want) {
			t.Errorf("the text lacks %q: %.500s", want, got.text)
		}
	}
	if len(got.text) > maxShown+4096 {
		t.Errorf("the text has %d bytes", len(got.text))
	}
}
