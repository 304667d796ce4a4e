package hutch_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"hutch"
)

// A result is at most about twice as long as the output, even if JSON has to escape every byte; and decoding it gives
// the output back.
func TestResultsDoNotSwell(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		out  string
		want string
	}{
		"zeros":      {strings.Repeat("\x00", 1<<20), "base64"},
		"few zeros":  {strings.Repeat("\x00", 1<<10), "utf-8"},
		"a web page": {strings.Repeat("<p>some words &amp; some more</p>\n", 1<<14), "utf-8"},
		"colours":    {strings.Repeat("\x1b[31mred\x1b[0m and some words\n", 1<<14), "utf-8"},
		"brackets":   {strings.Repeat("<<<<<<<<>", 1<<17), "base64"},
	} {
		b, err := json.Marshal(hutch.ExecResult{Stdout: []byte(test.out)})
		if err != nil {
			t.Fatal(err)
		}
		if most := 2*len(test.out) + 64<<10; len(b) > most {
			t.Errorf("%s: %d bytes are %d in JSON", name, len(test.out), len(b))
		}
		if !bytes.Contains(b[:min(len(b), 1<<10)], []byte(`"encoding":"`+test.want)) && !bytes.Contains(b[max(len(b)-1<<10, 0):], []byte(`"encoding":"`+test.want)) {
			t.Errorf("%s: not in %s", name, test.want)
		}
		var back hutch.ExecResult
		if err := json.Unmarshal(b, &back); err != nil || string(back.Stdout) != test.out {
			t.Errorf("%s: %v, and %d bytes came back of %d", name, err, len(back.Stdout), len(test.out))
		}
	}
}
