package secret

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"hutch"
)

// A host can show the credentials of a header without the text around them.
func TestMaskedInHeader(t *testing.T) {
	t.Parallel()
	v := Given(nil)
	for _, c := range []struct{ name, value, answer, want string }{
		{"Authorization", "Bearer tok-123456", `{"token_type": "Bearer", "token": "tok-123456"}`, `{"token_type": "Bearer", "token": "[redacted:header:Authorization]"}`},
		{"Authorization", "Basic dXNlcjpoaWRkZW4tcGFzcw==", "user has hidden-pass", "user has [redacted:header:Authorization]"},
		{"X-Api-Key", "abcdef123", "the key abcdef123, in hex 616263646566313233", "the key [redacted:header:X-Api-Key], in hex [redacted:header:X-Api-Key]"},
		{"Cookie", "theme=dark; session=0123456789abcdef0", "session 0123456789abcdef0, dark", "session [redacted:header:Cookie], dark"},
		{"X-Short", "prod", "prod", "prod"},
		{"Anthropic-Version", "2023-06-01", "at 2023-06-01", "at 2023-06-01"},
		{"Accept", "application/json", "application/json", "application/json"},
	} {
		r := v.Answers([]Credential{Header(c.name, c.value)})
		if got := r.String(c.answer); got != c.want {
			t.Errorf("%s: %s: %q, want %q", c.name, c.value, got, c.want)
		}
	}
	if IsHeader("API_KEY") || !IsHeader(Header("X", "y").Name) || !strings.Contains(Header("X", "y").As, "X") {
		t.Error("headers and secrets are mixed up")
	}
}

// TestMemoryOfAnswers: a caller that changes the header rules of a sandbox again and again does not fill the memory of the
// server with redactors. It is not parallel, because it measures the memory of the process.
func TestMemoryOfAnswers(t *testing.T) {
	v := Given(nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for change := range 12 {
		var list []Credential
		for i := range hutch.MaxHeaderValues / hutch.MaxHeaderValue {
			var value strings.Builder
			for value.Len() < hutch.MaxHeaderValue-32 {
				fmt.Fprintf(&value, "%02d%02d%04d<<<<<<<<<<;", change, i, value.Len())
			}
			list = append(list, Header(fmt.Sprint("X-", i), value.String()))
		}
		v.Answers(list)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if n := int64(after.HeapAlloc) - int64(before.HeapAlloc); n > maxAnswersSize+8<<20 {
		t.Errorf("%d MiB are kept", n>>20)
	}
	runtime.KeepAlive(v)
}

// A secret in the value of a header is masked even if the header is a public one, whose whole value is not masked. An
// equal value without a secret has another redactor.
func TestSecretInAHeaderIsMasked(t *testing.T) {
	t.Parallel()
	v := Given(nil)
	plain, with := Header("User-Agent", "agent/0a1b2c"), Header("User-Agent", "agent/0a1b2c", "0a1b2c")
	for range 2 {
		if got := v.Answers([]Credential{plain}).String("it is 0a1b2c"); got != "it is 0a1b2c" {
			t.Errorf("without a secret: %q", got)
		}
		if got := v.Answers([]Credential{with}).String("it is 0a1b2c"); got != "it is [redacted:header:User-Agent]" {
			t.Errorf("with one: %q", got)
		}
	}
}
