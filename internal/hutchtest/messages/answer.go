package messages

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Answer is the server's answer to a request. The zero value is an empty message.
type Answer struct {
	Blocks []Block
	Stop   string // stop_reason; default tool_use if there is a tool use, else end_turn
	Usage  Usage  // fields that are zero are estimated: a token is about four bytes

	// Status is the status of an error; ErrorType and ErrorMessage are its content. An Answer with an ErrorType and no
	// Status is an error in the middle of a stream, after the blocks.
	Status       int
	ErrorType    string
	ErrorMessage string
	RetryAfter   int // seconds

	Delay time.Duration // time before the first byte
	Piece int           // bytes of text in an event of a stream; default 16
	Pause time.Duration // pause between the events of a stream

	// CutAfter closes the connection after this many events of a stream. If the answer is not streamed, it closes the
	// connection in the middle of the body. 0 is never.
	CutAfter int
	// Body is sent instead of all other fields, with status 200: for malformed answers.
	Body string
}

// Usage counts tokens.
type Usage struct {
	Input         int `json:"input_tokens"`
	Output        int `json:"output_tokens"`
	CacheCreation int `json:"cache_creation_input_tokens"`
	CacheRead     int `json:"cache_read_input_tokens"`
}

// Text returns an answer with one text block.
func Text(text string) Answer { return Answer{Blocks: []Block{{Type: "text", Text: text}}} }

// TextBlock returns a text for [Answer.Blocks].
func TextBlock(text string) Block { return Block{Type: "text", Text: text} }

// ToolUse returns a call of a tool for [Answer.Blocks].
func ToolUse(id, name string, input any) Block {
	b, err := json.Marshal(input)
	if err != nil {
		panic(err)
	}
	return Block{Type: "tool_use", ID: id, Name: name, Input: b}
}

// stop returns the stop_reason of an answer.
func (a Answer) stop() string {
	if a.Stop != "" {
		return a.Stop
	}
	for _, b := range a.Blocks {
		if b.Type == "tool_use" {
			return "tool_use"
		}
	}
	return "end_turn"
}

// usage returns the token counts of an answer, and estimates those that the test did not set.
func (a Answer) usage(r Request) Usage {
	u := a.Usage
	u.Input = cmp.Or(u.Input, tokens(string(r.Raw)))
	if u.Output == 0 {
		for _, b := range a.Blocks {
			u.Output += tokens(b.Text + b.Thinking + string(b.Input))
		}
	}
	return u
}

func (a Answer) write(w http.ResponseWriter, hr *http.Request, r Request) {
	select {
	case <-time.After(a.Delay):
	case <-hr.Context().Done():
		return
	}
	switch {
	case a.Body != "" && r.Stream:
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.Write([]byte(a.Body))
	case a.Body != "":
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(a.Body))
	case a.Status != 0:
		a.fail(w)
	case r.Stream:
		a.stream(w, hr, r)
	case a.ErrorType != "":
		a.Status = http.StatusInternalServerError
		a.fail(w)
	case a.CutAfter > 0:
		w.Header().Set("Content-Length", "100000")
		w.Write([]byte(`{"id":"msg_test","type":"message","content":[{"type":"text","text":"`))
		cut(w)
	default:
		m := a.message(r)
		m["content"], m["stop_reason"], m["usage"] = a.blocks(), a.stop(), a.usage(r)
		reply(w, http.StatusOK, m)
	}
}

// blocks returns the blocks of an answer, never nil, because JSON would show null.
func (a Answer) blocks() []Block {
	if a.Blocks == nil {
		return []Block{}
	}
	return a.Blocks
}

// message returns a message of the API without content.
func (a Answer) message(r Request) map[string]any {
	return map[string]any{
		"id": fmt.Sprintf("msg_test_%d", r.Number), "type": "message", "role": "assistant", "model": r.Model,
		"content": []Block{}, "stop_reason": nil, "stop_sequence": nil,
	}
}

// cut ends the connection as a crash would.
func cut(w http.ResponseWriter) {
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}
