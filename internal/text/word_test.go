package text_test

import (
	"testing"

	"hutch/internal/text"
)

func TestWord(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"pypi.org":           "pypi.org",
		"10.0.0.0/8:443":     "10.0.0.0/8:443",
		"[2001:db8::1]:443":  "'[2001:db8::1]:443'",
		"*.example.com":      "'*.example.com'",
		"$(touch x).example": "'$(touch x).example'",
		"a'; touch x; '":     `'a'\''; touch x; '\'''`,
		"a\nb":               "'a b'",
		"":                   "''",
	} {
		if got := text.Word(in); got != want {
			t.Errorf("%q is %s, want %s", in, got, want)
		}
	}
}
