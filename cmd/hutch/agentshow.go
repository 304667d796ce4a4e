package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/coding"
	"hutch/internal/text"
)

func inert(s string) string { return text.Inert(s) }

// stage shows the events of an agent. Its messages are shown whole; of the results of its tools, only the beginning.
type stage struct {
	w      io.Writer
	prefix string // prefix of every line, where several agents work at once
}

func newStage(w io.Writer, prefix string) *stage { return &stage{w: w, prefix: prefix} }

const shownLines = 5 // shown lines of a tool's result

func (s *stage) show(e coding.Event) error {
	switch e.Type {
	case coding.Said:
		return s.lines("", e.Text, 0)
	case coding.Called:
		return s.lines("", "● "+text.Line(e.Tool)+"  "+clip(text.Line(e.Text), 200), 0)
	case coding.Got:
		return s.lines("    ", e.Text, shownLines)
	case coding.Log:
		return s.lines("! ", e.Text, 0)
	case coding.Ended:
		if e.Failed {
			return s.lines("! ", "the agent reports an error: "+e.Text, 0)
		}
	}
	return nil
}

// lines prints a text with a margin before each line: at most the given number of lines, or all for 0.
func (s *stage) lines(margin, all string, most int) error {
	list := strings.Split(strings.TrimRight(inert(all), "\n"), "\n")
	more := 0
	if most > 0 && len(list) > most {
		list, more = list[:most], len(list)-most
	}
	var b strings.Builder
	for _, line := range list {
		b.WriteString(s.prefix + margin + line + "\n")
	}
	if more > 0 {
		fmt.Fprintf(&b, "%s%s… %d more lines\n", s.prefix, margin, more)
	}
	_, err := io.WriteString(s.w, b.String())
	return err
}

// locked lets several agents write lines to one writer.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// tryAll gives several agents the same task, each in its own sandbox, and shows the result of each.
func (f *agentRun) tryAll(ctx context.Context, svc *client.Client, task coding.Task, std streams) error {
	begun, err := coding.Try(ctx, svc, task, f.tries)
	if err != nil {
		return err
	}
	out := &locked{w: std.err}
	all, err := begun.Follow(ctx, func(e coding.Event) error { return newStage(out, fmt.Sprintf("%d │ ", e.Try)).show(e) })
	if err != nil {
		begun.Stop(ctx)
	}
	for _, t := range all.Tries {
		f.remove(ctx, svc, t.Result.SandboxID, t.Error == "")
	}
	if err != nil {
		return err
	}
	if !f.asJSON {
		for _, t := range all.Tries {
			fmt.Fprintf(std.out, "# try %d, session %s\n", t.Try, t.Result.SandboxID)
			if err := showDiff(std.out, t.Result.Diff); err != nil {
				return err
			}
		}
	}
	if err := writeList(std.out, f.asJSON, all.Tries, "TRY\tSESSION\tRESULT\tFILES\tADDED\tREMOVED\tTIME\tTOKENS\tCOST", tryRow); err != nil {
		return err
	}
	if !f.rm && !f.asJSON {
		fmt.Fprintln(std.err, "hutch: take one with `hutch agent apply SESSION FOLDER`, and remove the others with `hutch rm SESSION`")
	}
	return checkTries(all.Tries)
}

func tryRow(t hutch.AgentTry) []any {
	r, verdict := t.Result, "done"
	switch {
	case t.Error != "":
		verdict = clip(t.Error, 60)
	case r.TimedOut:
		verdict = "time limit"
	case !r.Success:
		verdict = fmt.Sprintf("failed (%d)", r.ExitCode)
	}
	took := (time.Duration(r.Duration) * time.Millisecond).Round(100 * time.Millisecond)
	return []any{t.Try, r.SandboxID, verdict, r.Files, r.Added, r.Removed, took, r.Usage.InputTokens + r.Usage.OutputTokens, fmt.Sprintf("$%.2f", r.Usage.Cost)}
}

// checkTries returns an error if no try succeeded.
func checkTries(tries []hutch.AgentTry) error {
	for _, t := range tries {
		if t.Error == "" && t.Result.Success {
			return nil
		}
	}
	return hutch.Errorf(hutch.Conflict, "none of the %d tries succeeded: see what the agent did with `hutch agent attach SESSION`", len(tries))
}
