package messages

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"
)

// events writes server-sent events in the order and the form of the real service.
type events struct {
	w    http.ResponseWriter
	r    *http.Request
	a    Answer
	sent int
}

func (a Answer) stream(w http.ResponseWriter, hr *http.Request, r Request) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	e := &events{w: w, r: hr, a: a}
	usage := a.usage(r)
	m := a.message(r)
	m["usage"] = Usage{Input: usage.Input, Output: 1, CacheCreation: usage.CacheCreation, CacheRead: usage.CacheRead}
	e.send("message_start", map[string]any{"message": m})
	e.send("ping", map[string]any{})
	for i, b := range a.Blocks {
		e.block(i, b)
	}
	if a.ErrorType != "" {
		e.send("error", a.failure(w.Header().Get("request-id")))
		return
	}
	e.send("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": a.stop(), "stop_sequence": nil}, "usage": map[string]int{"output_tokens": usage.Output},
	})
	e.send("message_stop", map[string]any{})
}

// block sends a block in pieces.
func (e *events) block(i int, b Block) {
	start := map[string]any{"type": b.Type}
	kind, field, content := "text_delta", "text", b.Text
	switch b.Type {
	case "tool_use":
		start["id"], start["name"], start["input"] = b.ID, b.Name, struct{}{}
		kind, field, content = "input_json_delta", "partial_json", string(b.Input)
	case "thinking":
		start["thinking"], start["signature"] = "", ""
		kind, field, content = "thinking_delta", "thinking", b.Thinking
	default:
		start["text"] = ""
	}
	e.send("content_block_start", map[string]any{"index": i, "content_block": start})
	for _, piece := range pieces(content, e.a.Piece) {
		e.send("content_block_delta", map[string]any{"index": i, "delta": map[string]any{"type": kind, field: piece}})
	}
	e.send("content_block_stop", map[string]any{"index": i})
}

// send writes one event, or ends the connection if CutAfter says so.
func (e *events) send(name string, fields map[string]any) {
	if e.a.CutAfter > 0 && e.sent >= e.a.CutAfter {
		cut(e.w)
	}
	if e.sent > 0 && e.a.Pause > 0 {
		select {
		case <-time.After(e.a.Pause):
		case <-e.r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	if _, ok := fields["type"]; !ok {
		fields["type"] = name
	}
	b, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", name, b)
	http.NewResponseController(e.w).Flush()
	e.sent++
}

// pieces splits a text between its characters.
func pieces(text string, size int) (list []string) {
	if size <= 0 {
		size = 16
	}
	for len(text) > 0 {
		n := min(size, len(text))
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		list = append(list, text[:n])
		text = text[n:]
	}
	return list
}
