package runner

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"hutch"
)

func typescript(t testing.TB) Language {
	t.Helper()
	l, err := Lookup("typescript")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTypeScriptErrorsSayWhere(t *testing.T) {
	for source, want := range map[string][2]int{
		"let x: number = ;":                {1, 17},
		"const a = 1;\nconst b: = 2;\n":    {2, 10},
		"/* ü */ let = ":                   {1, 15},
		"function f(a: string {\n}":        {1, 22},
		"\n\n\nconst s = `unfinished ${1 ": {4, 27},
	} {
		_, err := typescript(t).Start(source)
		e, ok := errors.AsType[*hutch.Error](err)
		if !ok || e.Kind != hutch.Invalid {
			t.Errorf("%q: %v", source, err)
			continue
		}
		if got := [2]int{e.Data["line"].(int), e.Data["column"].(int)}; got != want ||
			!strings.Contains(e.Message, fmt.Sprintf("line %d, column %d", got[0], got[1])) {
			t.Errorf("%q: %v at %v; want %v", source, err, got, want)
		}
	}
}

func TestTypeScriptModules(t *testing.T) {
	for source, want := range map[string]string{
		"const x: number = 1":                       "main.cjs",
		"const fs = require('fs')":                  "main.cjs",
		"import fs from 'fs'; console.log(fs)":      "main.mjs",
		"import type { Stats } from 'fs'; let s: 1": "main.mjs",
		"export const x = 1":                        "main.mjs",
		"await Promise.resolve(1)":                  "main.mjs",
		"for await (const x of y) {}":               "main.mjs",
		"import('fs')":                              "main.cjs",
		"":                                          "main.cjs",
	} {
		start, err := typescript(t).Start(source)
		if err != nil || start.SourceName != want {
			t.Errorf("%q: %s, %v; want %s", source, start.SourceName, err, want)
		}
	}
}

func TestTypeScriptRunTimeErrorsSayTheLineOfTheSource(t *testing.T) {
	l := typescript(t)
	need(t, l)
	got := run(t, l, "interface A {\n  x: number\n}\n\n// a comment\nconst a: A = { x: 1 };\nthrow new Error('boom ' + a.x);\n", "")
	if got.code != 1 || !strings.Contains(got.stderr, "boom 1") || !strings.Contains(got.stderr, "main.ts:7:") {
		t.Errorf("got %+v", got)
	}
}

// The daemon parses sources of clients, and none of them must delay or end the daemon.
func TestTypeScriptBombs(t *testing.T) {
	full := func(piece string) string { return strings.Repeat(piece, hutch.MaxCommand/len(piece)) }
	for name, source := range map[string]string{
		"backtracking":         full("x<y<"),
		"parentheses":          full("("),
		"blocks":               full("{"),
		"templates":            full("`${"),
		"classes":              full("class A{static{"),
		"conditional types":    full("type A=B extends C?("),
		"generic arrows":       full("async<T>(x:"),
		"exponential defaults": full("(a="),
		"slow backtracking":    strings.Repeat("x<y<", 8000),
		"indentation":          strings.Repeat("{", 10000) + "f()" + strings.Repeat("}", 10000),
		"long name":            "let " + strings.Repeat("x", 1e6) + " " + strings.Repeat("y", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := typescript(t).Start(source)
			if !errors.Is(err, hutch.Invalid) || len(err.Error()) > 1000 {
				t.Errorf("%.1000v", err)
			}
			if took := time.Since(start); took > stripperWait {
				t.Errorf("took %v", took)
			}
		})
	}
}

func BenchmarkTypeScript(b *testing.B) {
	for b.Loop() {
		if _, err := typescript(b).Start(programs["typescript"]); err != nil {
			b.Fatal(err)
		}
	}
}
