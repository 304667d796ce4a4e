package jsoncount

import "testing"

func TestValues(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "{}": 0, "[{},{},{}]": 2, `{"a,b": "c,\",d", "e": [1, 2]}`: 2, `"open, string`: 0, `[",\\", 1]`: 1,
	} {
		if n := Values([]byte(text)); n != want {
			t.Errorf("%s has %d, not %d", text, n, want)
		}
	}
}
