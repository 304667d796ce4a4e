package ragflow

import (
	"encoding/json"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/compat"
)

// FuzzProgram: a run that is accepted has a language and an input that JSON can hold.
func FuzzProgram(f *testing.F) {
	for _, seed := range []string{
		`{"code_b64":"cGFzcw==","language":"python","arguments":{"a":[1,{"b":null}]}}`, `{"code_b64":"*"}`, `{"code_b64":"/w=="}`,
		`{"code_b64":"","language":null,"arguments":null}`, `{"code_b64":"","language":"ruby"}`, `{"arguments":7}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var p program
		if compat.Decode(body, &p) != nil {
			return
		}
		j, err := p.job()
		if err != nil {
			return
		}
		if in, err := json.Marshal(j.input); err != nil || j.language == "" || j.caller == "" || j.input.Arguments == nil || len(j.input.Mark) < 20 {
			t.Errorf("%s: %+v, %s, %v", body, j, in, err)
		}
	})
}

// FuzzSplit: nothing that a program prints is lost, and a result is JSON.
func FuzzSplit(f *testing.F) {
	f.Add("printed\nMARK:[1]\n")
	f.Add("\nMARK:{\nMARK:7")
	f.Fuzz(func(t *testing.T, stdout string) {
		printed, v := split(stdout, "MARK:")
		if v == nil && printed != stdout || v != nil && (!json.Valid(v.Value) || len(printed)+len(v.Value)+len("\nMARK:") > len(stdout)) {
			t.Errorf("%q: %q, %v", stdout, printed, v)
		}
	})
}

// FuzzArtifact: no name of an artifact leads out of a folder.
func FuzzArtifact(f *testing.F) {
	for _, name := range []string{"a.png", "../a.png", ".a.png", "a\x00.csv", "a/b.csv", "a\\b.PDF", "\xff.json"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		ok := isArtifact(hutch.FileInfo{Name: name, Type: hutch.RegularFile, Size: 1})
		if ok && (strings.ContainsAny(name, "/\\\x00\n") || strings.HasPrefix(name, ".") || strings.Contains(name, "..")) {
			t.Errorf("%q is an artifact", name)
		}
	})
}
