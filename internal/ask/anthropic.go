package ask

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"hutch"
)

// DefaultModel writes programs when no other model is configured.
const DefaultModel = "claude-sonnet-4-5"

// AnthropicURL is where Anthropic answers.
const AnthropicURL = "https://api.anthropic.com"

// AnthropicOptions are the settings of an [Anthropic]. Nothing is read from the environment.
type AnthropicOptions struct {
	Key     string
	BaseURL string // base URL of an endpoint that speaks the Messages API; default AnthropicURL
	Model   string // default DefaultModel
	Retries int    // retries of a request that fails before an answer begins, with pauses between them
}

// Anthropic is a model behind the Messages API.
type Anthropic struct {
	messages anthropic.MessageService
	model    string
	key      string
}

var _ Model = (*Anthropic)(nil)

// NewAnthropic returns a model. It connects at the first request.
func NewAnthropic(opt AnthropicOptions) *Anthropic {
	return &Anthropic{
		key: opt.Key, model: cmp.Or(opt.Model, DefaultModel),
		// NewClient would read keys from the environment; the service does not.
		messages: anthropic.NewMessageService(
			option.WithBaseURL(cmp.Or(opt.BaseURL, AnthropicURL)), option.WithAPIKey(opt.Key), option.WithMaxRetries(opt.Retries),
			option.WithHTTPClient(&http.Client{CheckRedirect: noRedirect}),
		),
	}
}

// noRedirect follows no redirects: they would send the key to another host.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// maxReply is more bytes than any model writes in hutch.MaxMaxTokens tokens.
const maxReply = 2 << 20

// Generate implements Model.
func (a *Anthropic) Generate(ctx context.Context, p Prompt, text func(string) error) (Reply, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the stream when we leave it early
	defer cancel()
	stream := a.messages.NewStreaming(ctx, a.params(p))
	defer stream.Close()
	var whole anthropic.Message
	var said strings.Builder
	reply := Reply{Model: cmp.Or(p.Model, a.model)}
	ended := false
	for stream.Next() {
		event := stream.Current()
		if err := whole.Accumulate(event); err != nil {
			return reply, refused("the model's answer is malformed: try again, or check the endpoint").Because(err)
		}
		reply.measure(whole)
		switch e := event.AsAny().(type) {
		case anthropic.ContentBlockDeltaEvent:
			if d, ok := e.Delta.AsAny().(anthropic.TextDelta); ok && d.Text != "" {
				if said.Len()+len(d.Text) > maxReply {
					return reply, refused("the model's answer does not end: it has over %d bytes", maxReply)
				}
				said.WriteString(d.Text)
				if err := text(d.Text); err != nil {
					return reply, err
				}
			}
		case anthropic.MessageStopEvent:
			ended = true
		}
	}
	reply.Text, reply.CutOff = said.String(), whole.StopReason == anthropic.StopReasonMaxTokens
	if err := stream.Err(); err != nil {
		return reply, a.failure(err, cmp.Or(p.Model, a.model))
	}
	if !ended {
		return reply, refused("the model's answer broke off: try again, or check the endpoint")
	}
	return reply, nil
}

func (a *Anthropic) params(p Prompt) anthropic.MessageNewParams {
	params := anthropic.MessageNewParams{
		Model: anthropic.Model(cmp.Or(p.Model, a.model)), MaxTokens: int64(p.MaxTokens), System: []anthropic.TextBlockParam{{Text: p.System}},
	}
	for _, m := range p.Messages {
		block := anthropic.NewTextBlock(m.Text)
		if m.Role == Assistant {
			params.Messages = append(params.Messages, anthropic.NewAssistantMessage(block))
		} else {
			params.Messages = append(params.Messages, anthropic.NewUserMessage(block))
		}
	}
	return params
}

// maxModel bounds the name of a model that an endpoint gives, in bytes.
const maxModel = 100

// measure copies the message's token usage so far into the reply.
func (r *Reply) measure(m anthropic.Message) {
	u := m.Usage
	r.CacheWrites, r.CacheReads = int(u.CacheCreationInputTokens), int(u.CacheReadInputTokens)
	r.Usage.InputTokens = int(u.InputTokens) + r.CacheWrites + r.CacheReads
	r.Usage.OutputTokens = int(u.OutputTokens)
	r.Model = cmp.Or(clip(string(m.Model), maxModel), r.Model)
}

// failure describes an error of the API. The text comes from the endpoint: it is limited, and the key is masked.
func (a *Anthropic) failure(err error, model string) error {
	if isDone(err) {
		return err
	}
	e, ok := errors.AsType[*anthropic.Error](err)
	if !ok {
		return refused("the model's answer broke off or is malformed: try again, or check the endpoint").Because(errors.New(a.masked(err.Error())))
	}
	said := a.masked(messageOf(e.RawJSON()))
	switch e.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return refused("the model's endpoint refused the key (%d): set another one in ANTHROPIC_API_KEY or --ask-key-file. It says: %s", e.StatusCode, said)
	case http.StatusTooManyRequests:
		return after(e, refused("the model's endpoint has reached its rate limit (429): try again later. It says: %s", said))
	case 529, http.StatusServiceUnavailable:
		return after(e, refused("the model's endpoint is overloaded (%d): try again later. It says: %s", e.StatusCode, said))
	case http.StatusNotFound:
		return refused("the model's endpoint does not know the model %q, or is at another URL (404). It says: %s", model, said)
	case http.StatusOK:
		return refused("the model's endpoint broke its answer off: try again later. It says: %s", said)
	}
	return refused("the model's endpoint answered %d. It says: %s", e.StatusCode, said)
}

// after adds to an error when to try again, if the endpoint reports it.
func after(e *anthropic.Error, err *hutch.Error) *hutch.Error {
	if e.Response == nil {
		return err
	}
	seconds, parseErr := strconv.Atoi(e.Response.Header.Get("Retry-After"))
	if parseErr != nil || seconds < 0 || seconds > int(24*time.Hour/time.Second) {
		return err
	}
	return err.With("retryAfter", seconds)
}

// masked removes the key from a text of the endpoint.
func (a *Anthropic) masked(text string) string {
	if len(a.key) > 4 {
		text = strings.ReplaceAll(text, a.key, "***")
	}
	return clip(text, 300)
}

// messageOf returns the message of an API error.
func messageOf(body string) string {
	var answer struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(body), &answer) != nil || answer.Error.Message == "" {
		return "(nothing that can be read)"
	}
	return answer.Error.Message
}
