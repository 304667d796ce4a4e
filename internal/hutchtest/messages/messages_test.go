package messages_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"hutch/internal/hutchtest/messages"
)

// client returns a client of the official SDK that does not retry.
func client(s *messages.Server, key string) *anthropic.MessageService {
	m := anthropic.NewMessageService(option.WithBaseURL(s.URL), option.WithAPIKey(key), option.WithMaxRetries(0))
	return &m
}

func params(texts ...string) anthropic.MessageNewParams {
	p := anthropic.MessageNewParams{Model: messages.Model, MaxTokens: 100, System: []anthropic.TextBlockParam{{Text: "be short"}}}
	for i, text := range texts {
		if block := anthropic.NewTextBlock(text); i%2 == 0 {
			p.Messages = append(p.Messages, anthropic.NewUserMessage(block))
		} else {
			p.Messages = append(p.Messages, anthropic.NewAssistantMessage(block))
		}
	}
	return p
}

// stream reads a streamed answer with the SDK, and returns the message and the number of events.
func stream(t *testing.T, m *anthropic.MessageService, p anthropic.MessageNewParams) (whole anthropic.Message, events int, err error) {
	t.Helper()
	s := m.NewStreaming(t.Context(), p)
	defer s.Close()
	for s.Next() {
		events++
		if err := whole.Accumulate(s.Current()); err != nil {
			return whole, events, err
		}
	}
	return whole, events, s.Err()
}

// TestText: the SDK reads the same message from a plain and from a streamed answer, and the server records both
// requests.
func TestText(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("Grüße, 世界 ", 20)
	s := messages.Start(t, func(r messages.Request) messages.Answer {
		if r.LastText() != "third" || len(r.Messages) != 3 || r.System.Text() != "be short" || r.Key() != messages.Key {
			t.Errorf("the request is %s", r.Raw)
		}
		return messages.Text(text)
	})
	m := client(s, messages.Key)
	plain, err := m.New(t.Context(), params("first", "second", "third"))
	if err != nil || plain.Content[0].Text != text || plain.StopReason != "end_turn" || plain.Usage.InputTokens == 0 {
		t.Errorf("%+v, %v", plain, err)
	}
	streamed, events, err := stream(t, m, params("first", "second", "third"))
	if err != nil || streamed.Content[0].Text != text || events < 10 || streamed.Usage.OutputTokens != plain.Usage.OutputTokens {
		t.Errorf("%d events: %+v, %v", events, streamed, err)
	}
	if all := s.Requests(); len(all) != 2 || all[0].Stream || !all[1].Stream || s.Last().Number != 2 || all[0].Header.Get("Anthropic-Version") == "" {
		t.Errorf("the record is %+v", all)
	}
	count, err := m.CountTokens(t.Context(), anthropic.MessageCountTokensParams{Model: messages.Model, Messages: params("one").Messages})
	if err != nil || count.InputTokens < 1 {
		t.Errorf("%+v, %v", count, err)
	}
}

// TestTools: a call of a tool and its result go back and forth, and a result without a call is refused.
func TestTools(t *testing.T) {
	t.Parallel()
	s := messages.Start(t, func(r messages.Request) messages.Answer {
		if list := r.Results(); len(list) == 1 {
			return messages.Text("it says " + list[0].Content.Text())
		}
		if !r.Has("bash") {
			t.Errorf("the tools are %+v", r.Tools)
		}
		return messages.Answer{Blocks: []messages.Block{messages.TextBlock("I look"), messages.ToolUse("toolu_1", "bash", map[string]string{"command": "ls"})}}
	})
	m := client(s, messages.Key)
	p := params("what is here?")
	p.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "bash"}}}
	answer, _, err := stream(t, m, p)
	if err != nil || answer.StopReason != "tool_use" || len(answer.Content) != 2 || string(answer.Content[1].Input) != `{"command":"ls"}` {
		t.Fatalf("%+v, %v", answer, err)
	}
	p.Messages = append(p.Messages, answer.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock("toolu_1", "a b c", false)))
	answer, _, err = stream(t, m, p)
	if err != nil || answer.Content[0].Text != "it says a b c" {
		t.Errorf("%+v, %v", answer, err)
	}
	p.Messages[2] = anthropic.NewUserMessage(anthropic.NewToolResultBlock("toolu_2", "", false))
	if _, _, err = stream(t, m, p); status(err) != 400 {
		t.Errorf("a result of no call: %v", err)
	}
	p.Messages[2] = anthropic.NewUserMessage(anthropic.NewTextBlock("and?"))
	if _, _, err = stream(t, m, p); status(err) != 400 {
		t.Errorf("a call without a result: %v", err)
	}
}

func status(err error) int {
	if e, ok := errors.AsType[*anthropic.Error](err); ok {
		return e.StatusCode
	}
	return 0
}

// TestFailures: the SDK understands the errors. A broken answer makes it return an error, or a message without a stop
// reason.
func TestFailures(t *testing.T) {
	t.Parallel()
	var answer messages.Answer
	s := messages.Start(t, func(messages.Request) messages.Answer { return answer })
	for want, a := range map[int]messages.Answer{401: messages.Unauthorized(), 429: messages.RateLimited(7), 529: messages.Overloaded(), 500: messages.Fail(500, "api_error", "oh")} {
		answer = a
		if _, err := client(s, messages.Key).New(t.Context(), params("x")); status(err) != want {
			t.Errorf("%d: %v", want, err)
		}
		if _, _, err := stream(t, client(s, messages.Key), params("x")); status(err) != want {
			t.Errorf("streamed %d: %v", want, err)
		}
	}
	if _, err := client(s, "sk-wrong").New(t.Context(), params("x")); status(err) != 401 {
		t.Errorf("a wrong key: %v", err)
	}
	for name, a := range map[string]messages.Answer{
		"cut off": {Blocks: messages.Text("a text that is long").Blocks, CutAfter: 4}, "malformed": {Body: "event: message_start\ndata: {\"type\":\n\n"},
		"no stream": {Body: "<html>"}, "an error inside": {Blocks: messages.Text("a").Blocks, ErrorType: "overloaded_error", ErrorMessage: "Overloaded"},
	} {
		answer = a
		if m, _, err := stream(t, client(s, messages.Key), params("x")); err == nil && m.StopReason != "" {
			t.Errorf("%s: %+v", name, m)
		}
	}
	answer = messages.Answer{Blocks: messages.Text("slow").Blocks, Delay: 30 * time.Millisecond}
	began := time.Now()
	if _, err := client(s, messages.Key).New(t.Context(), params("x")); err != nil || time.Since(began) < 30*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// TestRefused: this service refuses the same requests as the real one, with errors of the same form.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := messages.Start(t, nil)
	for body, want := range map[string]string{
		`{`: "not valid JSON", `{"max_tokens":1,"messages":[{"role":"user","content":"x"}]}`: "model: Field required",
		`{"model":"m","messages":[{"role":"user","content":"x"}]}`: "max_tokens: Field required", `{"model":"m","max_tokens":1,"messages":[]}`: "at least one message",
		`{"model":"m","max_tokens":1,"messages":[{"role":"system","content":"x"}]}`: "role", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":""}]}`: "non-empty",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/messages", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Api-Key", messages.Key)
		req.Header.Set("Anthropic-Version", "2023-06-01")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		var said struct {
			Type  string
			Error struct{ Type, Message string }
		}
		if json.Unmarshal(b, &said) != nil || resp.StatusCode != 400 || said.Type != "error" || said.Error.Type != "invalid_request_error" || !strings.Contains(said.Error.Message, want) {
			t.Errorf("%s: %d %s", body, resp.StatusCode, b)
		}
	}
}
