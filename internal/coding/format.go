package coding

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"hutch"
	"hutch/internal/text"
)

// Event is one thing that an agent does.
type Event = hutch.AgentEvent

const (
	Began  = hutch.AgentBegan
	Said   = hutch.AgentSaid
	Called = hutch.AgentCalled
	Got    = hutch.AgentGot
	Log    = hutch.AgentLog
	Ended  = hutch.AgentEnded
)

// maxText bounds the text of an event, in bytes.
const maxText = 64 << 10

// formats has a function for each format, which reads a line that is not empty. It skips unknown events, and returns a
// line in another form as a Log.
var formats = map[string]func([]byte) []Event{
	"text": func(line []byte) []Event {
		return []Event{{Type: Said, Text: text.Head(string(line), maxText, " …")}}
	},
	"claude":   inJSON(claude),
	"codex":    inJSON(codex),
	"gemini":   inJSON(gemini),
	"opencode": inJSON(opencode),
}

// inJSON returns a function that reads lines which are JSON objects.
func inJSON[T any](read func(T) []Event) func([]byte) []Event {
	return func(line []byte) []Event {
		var v T
		if line = bytes.TrimSpace(line); line[0] != '{' || json.Unmarshal(line, &v) != nil {
			return []Event{{Type: Log, Text: text.Head(string(line), maxText, " …")}}
		}
		events := read(v)
		for i := range events {
			events[i].Text, events[i].Tool = text.Head(events[i].Text, maxText, " …"), text.Head(events[i].Tool, maxText, " …")
		}
		return events
	}
}

// claudeLine is a line of `claude --output-format stream-json`.
type claudeLine struct {
	Type, Subtype, Model, Result string
	IsError                      bool    `json:"is_error"`
	Turns                        int     `json:"num_turns"`
	Cost                         float64 `json:"total_cost_usd"`
	Message                      struct {
		Content blocks
	}
	Usage struct {
		Input   int `json:"input_tokens"`
		Created int `json:"cache_creation_input_tokens"`
		Cached  int `json:"cache_read_input_tokens"`
		Output  int `json:"output_tokens"`
	}
}

type block struct {
	Type, Text, Name string
	Input            json.RawMessage
	Content          texts // content of the result of a tool
	IsError          bool  `json:"is_error"`
}

// blocks is a list of blocks. In JSON it can also be a text.
type blocks []block

func (b *blocks) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*b = blocks{{Type: "text", Text: text}}
		return nil
	}
	var list first[block]
	err := list.UnmarshalJSON(data)
	*b = blocks(list)
	return err
}

// texts is a text, or the texts of a list of blocks. Blocks inside a block are not read: with each level of nesting, the
// same bytes would be parsed once more.
type texts string

func (t *texts) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*t = texts(text)
		return nil
	}
	var list first[struct{ Type, Text string }]
	err := list.UnmarshalJSON(data)
	var all []string
	for _, x := range list {
		if x.Type == "text" {
			all = append(all, x.Text)
		}
	}
	*t = texts(strings.Join(all, "\n"))
	return err
}

// first is a list of which only the first maxElements are kept: a few bytes of JSON can take much more memory.
type first[T any] []T

const maxElements = 1000

func (l *first[T]) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	switch t, err := dec.Token(); {
	case err != nil || t == nil: // null
		return err
	case t != json.Delim('['):
		return errors.New("it is not a list")
	}
	for len(*l) < maxElements && dec.More() {
		var v T
		if err := dec.Decode(&v); err != nil {
			return err
		}
		*l = append(*l, v)
	}
	return nil
}

func claude(l claudeLine) (events []Event) {
	switch l.Type {
	case "system":
		if l.Subtype == "init" {
			return []Event{{Type: Began, Text: l.Model}}
		}
	case "assistant":
		for _, b := range l.Message.Content {
			switch b.Type {
			case "text":
				events = append(events, Event{Type: Said, Text: b.Text})
			case "tool_use":
				events = append(events, Event{Type: Called, Tool: b.Name, Text: purpose(b.Input)})
			}
		}
	case "user":
		for _, b := range l.Message.Content {
			if b.Type == "tool_result" {
				events = append(events, Event{Type: Got, Text: string(b.Content), Failed: b.IsError})
			}
		}
	case "result":
		u := &hutch.AgentUsage{Turns: l.Turns, InputTokens: l.Usage.Input + l.Usage.Created + l.Usage.Cached, OutputTokens: l.Usage.Output, Cost: l.Cost}
		return []Event{{Type: Ended, Text: l.Result, Failed: l.IsError || l.Subtype != "success", Usage: u}}
	}
	return events
}

// purpose returns in a few words what a tool is used for: its most telling input field, or all fields.
func purpose(input json.RawMessage) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(input, &fields) != nil {
		return string(input)
	}
	for _, name := range []string{"command", "file_path", "filePath", "path", "pattern", "query", "url", "description"} {
		var text string
		if json.Unmarshal(fields[name], &text) == nil && text != "" {
			return text
		}
	}
	return string(input)
}

// codexLine is a line of `codex exec --json`.
type codexLine struct {
	Type, Message string
	Item          struct {
		Type, Text, Command string
		Output              string `json:"aggregated_output"`
		Status              string
		ExitCode            *int `json:"exit_code"`
		Changes             first[struct{ Path, Kind string }]
		Message             string
	}
	Usage struct {
		Input  int `json:"input_tokens"`
		Output int `json:"output_tokens"`
	}
	Error struct{ Message string }
}

func codex(l codexLine) []Event {
	switch l.Type {
	case "thread.started":
		return []Event{{Type: Began}}
	case "item.completed":
		return codexItem(l)
	case "turn.completed":
		return []Event{{Type: Ended, Usage: &hutch.AgentUsage{Turns: 1, InputTokens: l.Usage.Input, OutputTokens: l.Usage.Output}}}
	case "turn.failed":
		return []Event{{Type: Ended, Text: l.Error.Message, Failed: true}}
	case "error":
		return []Event{{Type: Log, Text: l.Message, Failed: true}}
	}
	return nil
}

func codexItem(l codexLine) (events []Event) {
	switch i := l.Item; i.Type {
	case "agent_message":
		return []Event{{Type: Said, Text: i.Text}}
	case "command_execution":
		return []Event{{Type: Called, Tool: "command", Text: i.Command}, {Type: Got, Text: i.Output, Failed: i.ExitCode != nil && *i.ExitCode != 0}}
	case "file_change":
		for _, c := range i.Changes {
			events = append(events, Event{Type: Called, Tool: c.Kind, Text: c.Path})
		}
	case "error":
		return []Event{{Type: Log, Text: i.Message, Failed: true}}
	}
	return events
}

// geminiLine is a line of `gemini --output-format stream-json`.
type geminiLine struct {
	Type, Role, Model, Status, Message, Output string
	Content                                    string
	Delta                                      bool
	Tool                                       string `json:"tool_name"`
	Parameters                                 json.RawMessage
	Error                                      struct{ Message string }
	Stats                                      struct {
		Input  int `json:"input_tokens"`
		Output int `json:"output_tokens"`
	}
}

func gemini(l geminiLine) []Event {
	switch {
	case l.Type == "init":
		return []Event{{Type: Began, Text: l.Model}}
	case l.Type == "message" && l.Role == "assistant":
		return []Event{{Type: Said, Text: l.Content, Continues: l.Delta}}
	case l.Type == "tool_use":
		return []Event{{Type: Called, Tool: l.Tool, Text: purpose(l.Parameters)}}
	case l.Type == "tool_result":
		return []Event{{Type: Got, Text: l.Output + l.Error.Message, Failed: l.Status == "error"}}
	case l.Type == "error":
		return []Event{{Type: Log, Text: l.Message, Failed: true}}
	case l.Type == "result":
		return []Event{{Type: Ended, Text: l.Error.Message, Failed: l.Status != "success", Usage: &hutch.AgentUsage{Turns: 1, InputTokens: l.Stats.Input, OutputTokens: l.Stats.Output}}}
	}
	return nil
}

// opencodeLine is a line of `opencode run --format json`.
type opencodeLine struct {
	Type string
	Part struct {
		Text, Tool string
		Cost       float64
		Tokens     struct{ Input, Output int }
		State      struct {
			Status, Output, Error string
			Input                 json.RawMessage
		}
	}
	Error struct {
		Name string
		Data struct{ Message string }
	}
}

func opencode(l opencodeLine) []Event {
	switch p := l.Part; l.Type {
	case "text":
		return []Event{{Type: Said, Text: p.Text}}
	case "tool_use":
		return []Event{{Type: Called, Tool: p.Tool, Text: purpose(p.State.Input)}, {Type: Got, Text: p.State.Output + p.State.Error, Failed: p.State.Status == "error"}}
	case "step_finish":
		return []Event{{Type: Ended, Usage: &hutch.AgentUsage{Turns: 1, InputTokens: p.Tokens.Input, OutputTokens: p.Tokens.Output, Cost: p.Cost}}}
	case "error":
		return []Event{{Type: Ended, Text: strings.TrimSpace(l.Error.Name + " " + l.Error.Data.Message), Failed: true}}
	}
	return nil
}
