package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"hutch/internal/text"
)

// hostile is text that a program, a file name or another tenant can put into our output: a cleared screen, a changed
// clipboard, the same with C1 controls, a name that runs backwards, an extra line.
const hostile = "\x1b[2J\x1b]52;c;aGk=\a\u009b2J\u009d52;c;x\u202egpj.exe\r\nroot  running"

func TestTablesDoNotSteerTheTerminal(t *testing.T) {
	var out bytes.Buffer
	if err := writeList(&out, false, []string{hostile}, "COMMAND", func(s string) []any { return []any{s, oneLine(s)} }); err != nil {
		t.Fatal(err)
	}
	exitStatus(&out, errors.New(hostile))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if strings.ContainsFunc(strings.Join(lines, ""), text.Steers) || len(lines) != 4 { // the head, one row, an error of two lines
		t.Errorf("the terminal is shown %q", lines)
	}
}

// TestCells: values of a table are shown as JSON has them, and not as Go prints them.
func TestCells(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		`"a b"`: "a b", `1234567`: "1234567", `0.5`: "0.5", `true`: "true", `null`: "", `{"a":[1,2]}`: `{"a":[1,2]}`,
	} {
		if got := cell(json.RawMessage(value)); got != want {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
	}
}
