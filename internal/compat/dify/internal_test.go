package dify

import (
	"strings"
	"testing"
	"unicode/utf8"

	"hutch"
	"hutch/internal/compat"
)

// FuzzProgram: an accepted run has a language, code, and a command that the service accepts.
func FuzzProgram(f *testing.F) {
	for _, seed := range []string{
		`{"language":"python3","code":"print(1)","preload":"import os","enable_network":true}`,
		`{"language":"nodejs","code":"","preload":"\u0000"}`, `{"language":"jinja2","code":7}`, `{"language":"python3","code":"x","dependencies":[]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var p program
		if compat.Decode(body, &p) != nil {
			return
		}
		l, err := p.check()
		if err != nil {
			if hutch.KindOf(err) != hutch.Invalid {
				t.Errorf("%s: %v", body, err)
			}
			return
		}
		if p.Code == "" || l.name == "" || !strings.Contains(l.loader, "stdin") && !strings.Contains(l.loader, "readFileSync(0") {
			t.Errorf("%s is run as %+v", body, l)
		}
		if n := p.network(); (n.Mode == hutch.NetworkNone) == p.Network {
			t.Errorf("%s: the network is %+v", body, n)
		}
	})
}

// FuzzListing: the output of a sandbox about its packages is a list, or is refused.
func FuzzListing(f *testing.F) {
	f.Add(`[{"name":"a","version":"1"}]`)
	f.Add(`null`)
	f.Add(`[null]{}`)
	f.Fuzz(func(t *testing.T, text string) {
		if list, ok := decodeListing(text); ok && (list == nil || len(list) > maxDependencies) {
			t.Errorf("%q: %d packages", text, len(list))
		}
	})
}

// FuzzOutcome: an error is reported exactly if the run failed, and texts are valid.
func FuzzOutcome(f *testing.F) {
	f.Add([]byte("out\xff"), []byte("err"), 3, false, "")
	f.Fuzz(func(t *testing.T, stdout, stderr []byte, code int, late bool, limit string) {
		out := compat.Collected{Max: 1 << 10}
		add := out.Add(t.Context())
		full := add(hutch.Output{Stream: hutch.Stdout, Data: stdout}) != nil || add(hutch.Output{Stream: hutch.Stderr, Data: stderr}) != nil
		o := describe(hutch.ExecResult{ExitCode: code, TimedOut: late, Limit: limit}, &out)
		failed := full || late || limit != "" || code != 0
		if (o.Error != "") != failed || (o.ExitCode != 0) != failed || !utf8.ValidString(o.Stdout+o.Stderr+o.Error) {
			t.Errorf("%+v", o)
		}
	})
}
