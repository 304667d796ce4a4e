package coding_test

import (
	"errors"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/coding"
)

// TestShipped: the definitions that Hutch ships are valid.
func TestShipped(t *testing.T) {
	t.Parallel()
	names := coding.Names()
	if strings.Join(names, " ") != "claude codex gemini opencode" {
		t.Errorf("there are %q", names)
	}
	for _, name := range names {
		if d, err := coding.Named(name); err != nil || d.Name != name || d.Resume == "" || len(d.Keys) == 0 {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	if _, err := coding.Named("../claude"); !errors.Is(err, hutch.NotFound) {
		t.Errorf("a path gave %v", err)
	}
}

// TestBadDefinitions: each error names the field that is wrong.
func TestBadDefinitions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                  "name",
		"name: x":                           "command",
		"name: ../x\ncommand: y":            "name",
		"name: x\ncommand: '  '":            "command",
		"name: x\ncommand: y\nb: 1":         "a definition has no field \"b\"",
		"name: x\ncommand: y\nformat: html": "format",
		"name: x\ncommand: y\nmemory: -1":   "memory",
		"name: x\ncommand: y\nallow: ['*']": "*",
		"name: x\ncommand: y\nkeys: [{secret: K, host: 10.0.0.1}]":              "10.0.0.1",
		"name: x\ncommand: y\nkeys: [{secret: 'a b', host: a.b.c}]":             "a b",
		"name: x\ncommand: y\nkeys: [{secret: K, host: a.b.c, baseURL: 'x y'}]": "x y",
		"- a":     "cannot be read",
		"a: &a [": "cannot be read",
		"name: x\ncommand: " + strings.Repeat("y", 70<<10): "limit",
	} {
		_, err := coding.ParseDefinition([]byte(text))
		if !errors.Is(err, hutch.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q gave %v, and not a word of %q", text, err, want)
		}
	}
}

func FuzzParseDefinition(f *testing.F) {
	f.Add([]byte("name: x\ncommand: y\nkeys: [{secret: K, host: a.example.com}]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if d, err := coding.ParseDefinition(text); err == nil && (d.Name == "" || strings.TrimSpace(d.Command) == "") {
			t.Errorf("%q was taken: %+v", text, d)
		}
	})
}
