package stream_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"hutch"
	"hutch/internal/stream"
)

var recorded = hutch.Process{ID: "p-1", Command: "bash", StartTime: time.Unix(1_700_000_000, 0).UTC(), Terminal: &hutch.Size{Columns: 80, Rows: 24}}

func at(ms int, data string, lost int64) hutch.Output {
	return hutch.Output{Stream: hutch.Stdout, Data: []byte(data), Lost: lost, Time: recorded.StartTime.Add(time.Duration(ms) * time.Millisecond)}
}

func TestAsciicast(t *testing.T) {
	var b bytes.Buffer
	a, err := stream.NewAsciicast(&b, recorded)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []hutch.Output{at(5, "$ \x1b[31m\xe2\x82", 0), at(250, "\xac<\xff>", 0), at(100, "back", 7), at(300, "\xf0\x9f", 0)} {
		if err := a.Output(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	want := `{"env":{"TERM":"xterm-256color"},"height":24,"timestamp":1700000000,"title":"bash","version":2,"width":80}
[0.005,"o","$ \u001b[31m"]
[0.25,"o","€\u003c` + "\uFFFD" + `\u003e"]
[0.25,"m","7 bytes were not kept"]
[0.25,"o","back"]
[0.3,"o","` + "\uFFFD" + `"]
`
	if b.String() != want {
		t.Errorf("the recording is\n%s, not\n%s", &b, want)
	}
}

// Whatever a program prints, in whatever pieces, each line of the recording is JSON. Valid output is recorded unchanged.
func FuzzAsciicast(f *testing.F) {
	f.Add("héllo\r\n\x1b]0;title\a", uint8(1))
	f.Add("]\n[0,\"i\",\"rm -rf /\"]\n\xff\xf0\x9f\x98", uint8(3))
	f.Fuzz(func(t *testing.T, text string, step uint8) {
		var b bytes.Buffer
		a, _ := stream.NewAsciicast(&b, recorded)
		size := int(step%8) + 1
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			a.Output(at(1, rest[:n], 0))
			rest = rest[n:]
		}
		a.Close()
		lines, shown := bufio.NewScanner(&b), ""
		lines.Buffer(nil, 1<<20)
		lines.Scan()
		for lines.Scan() {
			var event []any
			if err := json.Unmarshal(lines.Bytes(), &event); err != nil || len(event) != 3 || event[1] != "o" {
				t.Fatalf("the line %q: %v", lines.Text(), err)
			}
			shown += event[2].(string)
		}
		if utf8.ValidString(text) && shown != text {
			t.Errorf("%q became %q", text, shown)
		}
		if strings.Contains(shown, "\xff") {
			t.Errorf("%q is not text", shown)
		}
	})
}

func TestAsciicastNeedsATerminal(t *testing.T) {
	if _, err := stream.NewAsciicast(nil, hutch.Process{ID: "p-2"}); !errors.Is(err, hutch.Unsupported) {
		t.Errorf("%v", err)
	}
}
