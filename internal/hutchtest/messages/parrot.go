package messages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Parrot takes its answers from the question. Lines "---" divide the question into parts. The parts after the first are
// the answers, one after the other, and the last one is repeated. If the first part contains "overloaded", the model is
// overloaded. With this, a test that can only use a client of the server can control the model.
func Parrot(r Request) Answer {
	var first string
	answered := 0
	for _, m := range r.Messages {
		if m.Role == "assistant" {
			answered++
		} else if answered == 0 && first == "" {
			first = m.Content.Text()
		}
	}
	asked, said, found := strings.Cut(first, "\n---\n")
	switch {
	case strings.Contains(asked, "overloaded"):
		return Overloaded()
	case !found:
		return Text("There is nothing to say.")
	}
	parts := strings.Split(said, "\n---\n")
	return Text(parts[min(answered, len(parts)-1)])
}

// Flags starts a [Parrot], and returns the flags that make `hutch serve` use it as the model.
func Flags(t testing.TB) []string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(Key), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--ask-url", Start(t, Parrot).URL, "--ask-key-file", key, "--ask-model", Model}
}
