package text_test

import (
	"encoding/json"
	"strings"
	"testing"

	"hutch/internal/text"
)

func TestJSON(t *testing.T) {
	want := "a\x1b\u009b31m\u202eevil\x7f\u2028\U000e0041é\n"
	b, err := json.MarshalIndent(map[string]string{"label": want}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	safe := text.JSON(string(b))
	if strings.ContainsFunc(safe, func(r rune) bool { return r != '\n' && text.Steers(r) }) {
		t.Errorf("%q", safe)
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(safe), &got); err != nil || got["label"] != want {
		t.Errorf("%q, %v", got, err)
	}
}
