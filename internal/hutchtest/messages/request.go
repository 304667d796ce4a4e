package messages

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Request is a client's request.
type Request struct {
	Number int             `json:"-"` // 1 is the first request to the server
	Method string          `json:"-"`
	Path   string          `json:"-"`
	Header http.Header     `json:"-"`
	Raw    json.RawMessage `json:"-"` // the body as received

	Model       string          `json:"model"`
	MaxTokens   int             `json:"max_tokens"`
	System      Content         `json:"system"`
	Messages    []Message       `json:"messages"`
	Tools       []Tool          `json:"tools"`
	ToolChoice  json.RawMessage `json:"tool_choice"`
	Stream      bool            `json:"stream"`
	Temperature *float64        `json:"temperature"`
}

// Key returns the API key of a request: its x-api-key or else its bearer token.
func (r Request) Key() string { return cmp.Or(r.Header.Get("X-Api-Key"), bearer(r.Header)) }

// LastText returns the text of the user's newest message.
func (r Request) LastText() string {
	if len(r.Messages) == 0 {
		return ""
	}
	return r.Messages[len(r.Messages)-1].Content.Text()
}

// Results returns the tool results in the newest message.
func (r Request) Results() (list []Block) {
	if len(r.Messages) == 0 {
		return nil
	}
	for _, b := range r.Messages[len(r.Messages)-1].Content {
		if b.Type == "tool_result" {
			list = append(list, b)
		}
	}
	return list
}

// Has reports whether a request offers a tool.
func (r Request) Has(tool string) bool {
	for _, t := range r.Tools {
		if t.Name == tool {
			return true
		}
	}
	return false
}

// Message is one message of the conversation.
type Message struct {
	Role    string  `json:"role"`
	Content Content `json:"content"`
}

// Content is a list of blocks; a client can also send one string.
type Content []Block

func (c *Content) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*c = Content{{Type: "text", Text: text}}
		return nil
	}
	var list []Block
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	*c = list
	return nil
}

// Text joins the texts of the blocks, one per line.
func (c Content) Text() string {
	var parts []string
	for _, b := range c {
		if b.Type == "text" {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// Block is a part of a message: text, a tool use, a tool's result, or thinking.
type Block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Thinking  string          `json:"thinking,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
	Content   Content         `json:"content,omitempty"` // content of a tool's result
}

// Tool is a tool in a request. Tools that the service itself runs have a Type and no InputSchema.
type Tool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// invalid returns the error message with which the real service would refuse a request, or "".
func (r *Request) invalid() string {
	switch {
	case r.Model == "":
		return "model: Field required"
	case r.MaxTokens < 1 && r.Path == "/v1/messages":
		return "max_tokens: Field required"
	case len(r.Messages) == 0:
		return "messages: at least one message is required"
	}
	for i, t := range r.Tools {
		if t.Name == "" {
			return fmt.Sprintf("tools.%d.name: Field required", i)
		}
	}
	open := map[string]bool{} // tool uses of the previous message
	for i, m := range r.Messages {
		if m.Role != "user" && m.Role != "assistant" {
			return fmt.Sprintf("messages.%d.role: Input should be 'user' or 'assistant'", i)
		}
		if len(m.Content) == 0 {
			return fmt.Sprintf("messages.%d: all messages must have non-empty content", i)
		}
		if message := answers(i, m, open); message != "" {
			return message
		}
	}
	if last := r.Messages[len(r.Messages)-1]; last.Role == "assistant" && strings.TrimRight(last.Content.Text(), " \n\t") != last.Content.Text() {
		return "messages: final assistant content cannot end with trailing whitespace"
	}
	return ""
}

// answers checks the blocks of message i, and returns an error message or "". open has the tool uses that wait for
// results; afterwards it has the tool uses of this message.
func answers(i int, m Message, open map[string]bool) string {
	uses := map[string]bool{}
	for j, b := range m.Content {
		switch b.Type {
		case "text":
			if b.Text == "" {
				return "messages: text content blocks must be non-empty"
			}
		case "tool_use":
			uses[b.ID] = true
		case "tool_result":
			if !open[b.ToolUseID] {
				return fmt.Sprintf("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", i, j, b.ToolUseID)
			}
			delete(open, b.ToolUseID)
		}
	}
	for id := range open {
		return fmt.Sprintf("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.", i-1, id)
	}
	for id := range uses {
		open[id] = true
	}
	return ""
}
