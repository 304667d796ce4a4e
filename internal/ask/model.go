package ask

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"hutch"
)

// Model writes text. [Anthropic] is the real one.
type Model interface {
	// Generate asks for one answer. It passes the text on as it arrives; an error from text cancels. Its errors are of
	// kind Unavailable or Timeout, and never hold the key.
	Generate(ctx context.Context, p Prompt, text func(string) error) (Reply, error)
}

// Prompt is a conversation for the model to continue. The first and the last message are the user's.
type Prompt struct {
	Model     string // empty for the model's default
	System    string
	Messages  []Message
	MaxTokens int
}

// Role is the author of a message.
type Role string

const (
	User      Role = "user"
	Assistant Role = "assistant"
)

// Message is a part of a prompt.
type Message struct {
	Role Role
	Text string
}

// Reply is an answer of the model.
type Reply struct {
	Model string
	Text  string
	// CutOff says that the answer reached its limit of tokens.
	CutOff bool
	Usage  hutch.ModelUsage
	// CacheWrites and CacheReads are the input tokens that were written to the model's cache and read from it: they
	// have their own prices.
	CacheWrites, CacheReads int
}

// Price is the price of a million tokens.
type Price struct{ Input, Output float64 }

// Prices maps the name of a model, or the beginning of its name, to its price.
type Prices map[string]Price

// ParsePrice reads INPUT/OUTPUT, such as 3/15.
func ParsePrice(text string) (Price, error) {
	in, out, ok := strings.Cut(text, "/")
	input, err := strconv.ParseFloat(strings.TrimSpace(in), 64)
	output, err2 := strconv.ParseFloat(strings.TrimSpace(out), 64)
	if !ok || err != nil || err2 != nil || !(input >= 0 && input < 1e6) || !(output >= 0 && output < 1e6) {
		return Price{}, fmt.Errorf("the price %.40q of a model is not INPUT/OUTPUT for a million tokens, such as 3/15", text)
	}
	return Price{input, output}, nil
}

// of returns the price of a model: the one for the longest prefix of the model's name.
func (p Prices) of(model string) (Price, bool) {
	best, found := "", false
	for name := range p {
		if strings.HasPrefix(model, name) && (!found || len(name) > len(best)) {
			best, found = name, true
		}
	}
	return p[best], found
}

// cost returns nil for a model without a price. A token that is written to the model's cache costs a quarter more than
// an input token, and a token that is read from the cache costs a tenth.
func (p Prices) cost(r Reply) *float64 {
	price, ok := p.of(r.Model)
	if !ok {
		return nil
	}
	plain := float64(r.Usage.InputTokens - r.CacheWrites - r.CacheReads)
	cost := (price.Input*(plain+1.25*float64(r.CacheWrites)+0.1*float64(r.CacheReads)) + price.Output*float64(r.Usage.OutputTokens)) / 1e6
	return &cost
}
