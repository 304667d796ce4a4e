package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"

	"hutch"
	"hutch/internal/ask"
	"hutch/internal/hutchtest/messages"
)

// questions measures the time that POST /execute adds to the time of a model: the baseline is the same request to the
// model alone, which answers at once. The sandbox comes from the pool, or is that of a conversation. The pool is too
// small for a hundred simultaneous questions.
func (l *lab) questions(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "to the model alone", "added, p50")
	model := httptest.NewServer(messages.New(func(messages.Request) messages.Answer {
		return messages.Text("```bash\necho 42\n```")
	}))
	defer model.Close()
	key := filepath.Join(l.dir, "ask-key")
	if err := os.WriteFile(key, []byte(messages.Key), 0o600); err != nil {
		return t, err
	}
	alone := ask.NewAnthropic(ask.AnthropicOptions{Key: messages.Key, BaseURL: model.URL})
	for _, f := range l.runtimes {
		s, err := serve(ctx, l.dir, "ask-"+f.runtime, "--runtime", f.runtime, "--ask-url", model.URL, "--ask-key-file", key, "--ask-cache", "0", "--max-sandboxes", "200")
		if err != nil {
			return t, err
		}
		question := func(conversation string) func(context.Context, int) error {
			return func(ctx context.Context, _ int) error {
				a, err := s.rest.Ask(ctx, hutch.Question{Question: "What is 6*7?", Language: "bash", ConversationID: conversation}, nil)
				if err == nil && a.Output != "42\n" {
					err = fmt.Errorf("the answer is %q: %s", a.Output, a.Error)
				}
				return err
			}
		}
		subjects := []subject{
			{"the model alone", func(ctx context.Context, _ int) error {
				_, err := alone.Generate(ctx, ask.Prompt{System: "x", Messages: []ask.Message{{Role: ask.User, Text: "x"}}, MaxTokens: 10}, func(string) error { return nil })
				return err
			}},
			{f.runtime + ", a sandbox of the pool", question("")},
			{f.runtime + ", a conversation", question("bench")},
		}
		all, err := interleave(ctx, l.rounds, max(l.calls/10, 2), subjects)
		if err != nil {
			return t, err
		}
		hundred := subject{f.runtime + ", a hundred at once", question("")}
		took, err := atOnce(ctx, l.rounds, 100, hundred)
		if err != nil {
			return t, err
		}
		all, subjects = append(all, took), append(subjects, hundred)
		for i, took := range all[1:] {
			t.quantiles(subjects[i+1].name, took, all[0])
			last := len(t.rows) - 1
			t.rows[last] = append(t.rows[last], number(took.at(0.5)-all[0].at(0.5)))
		}
		f.questions = all[2].at(0.5) - all[0].at(0.5)
		if err := s.close(ctx); err != nil {
			return t, err
		}
	}
	t.note("The aim is at most 30 ms added.")
	return t, ctx.Err()
}
