package coding

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hutch"
)

// TestFormats has lines of the form that each program documents.
func TestFormats(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines  string
		events []string
		answer string
		usage  hutch.AgentUsage
		failed bool
	}{
		"text": {"one\n\ntwo\n", []string{"said one", "said two"}, "two", hutch.AgentUsage{}, false},
		"claude": {`{"type":"system","subtype":"init","model":"m"}
{"type":"assistant","message":{"content":[{"type":"text","text":"hi"},{"type":"tool_use","name":"Edit","input":{"file_path":"a.go","old_string":"x"}}]}}
{"type":"user","message":{"content":[{"type":"tool_result","content":"given"}]}}
{"type":"result","subtype":"error_max_turns","is_error":true,"num_turns":3,"total_cost_usd":0.5,"usage":{"input_tokens":1,"cache_read_input_tokens":2,"cache_creation_input_tokens":3,"output_tokens":4}}
`, []string{"began m", "said hi", "called Edit a.go", "got given", "ended"}, "hi", hutch.AgentUsage{Turns: 3, InputTokens: 6, OutputTokens: 4, Cost: 0.5}, true},
		"codex": {`{"type":"thread.started","thread_id":"t"}
{"type":"turn.started"}
{"type":"item.started","item":{"id":"1","type":"command_execution","command":"ls"}}
{"type":"item.completed","item":{"id":"1","type":"command_execution","command":"ls","aggregated_output":"a\n","exit_code":0,"status":"completed"}}
{"type":"item.completed","item":{"id":"2","type":"file_change","changes":[{"path":"a","kind":"update"}]}}
{"type":"item.completed","item":{"id":"3","type":"agent_message","text":"done"}}
{"type":"turn.completed","usage":{"input_tokens":5,"cached_input_tokens":1,"output_tokens":2}}
`, []string{"began", "called command ls", "got a", "called update a", "said done", "ended"}, "done", hutch.AgentUsage{Turns: 1, InputTokens: 5, OutputTokens: 2, Cost: 0}, false},
		"gemini": {`{"type":"init","session_id":"s","model":"g"}
{"type":"message","role":"user","content":"x"}
{"type":"message","role":"assistant","content":"do","delta":true}
{"type":"message","role":"assistant","content":"ne","delta":true}
{"type":"tool_use","tool_name":"shell","tool_id":"1","parameters":{"command":"ls"}}
{"type":"tool_result","tool_id":"1","status":"error","error":{"type":"x","message":"no"}}
{"type":"result","status":"success","stats":{"total_tokens":3,"input_tokens":1,"output_tokens":2}}
`, []string{"began g", "said do", "said ne", "called shell ls", "got no", "ended"}, "done", hutch.AgentUsage{Turns: 1, InputTokens: 1, OutputTokens: 2, Cost: 0}, false},
		"opencode": {`{"type":"step_start","sessionID":"s","part":{}}
{"type":"tool_use","part":{"tool":"bash","state":{"status":"completed","input":{"command":"ls"},"output":"a"}}}
{"type":"text","part":{"text":"done"}}
{"type":"step_finish","part":{"cost":0.25,"tokens":{"input":1,"output":2}}}
{"type":"error","error":{"name":"APIError","data":{"message":"no"}}}
`, []string{"called bash ls", "got a", "said done", "ended", "ended APIError no"}, "APIError no", hutch.AgentUsage{Turns: 1, InputTokens: 1, OutputTokens: 2, Cost: 0.25}, true},
	} {
		for _, size := range []int{1, 7, 1 << 20} { // pieces of the output
			var events []string
			d := decoder{read: formats[name], show: func(e Event) error {
				events = append(events, strings.Join(strings.Fields(fmt.Sprintln(e.Type, e.Tool, e.Text)), " "))
				return nil
			}}
			for rest := []byte(c.lines); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if err := d.add(hutch.Output{Stream: hutch.Stdout, Data: rest[:min(size, len(rest))]}); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.close(); err != nil || strings.Join(events, "|") != strings.Join(c.events, "|") || d.answer != c.answer || d.usage != c.usage || d.failed != c.failed {
				t.Errorf("%s in pieces of %d: %q, answer %q, %+v, failed %v, %v", name, size, events, d.answer, d.usage, d.failed, err)
			}
		}
	}
}

// TestLinesThatCostMuch: long lines of an agent, with deep nesting or many elements, cost the server little time.
func TestLinesThatCostMuch(t *testing.T) {
	t.Parallel()
	const levels = 4500 // JSON has at most 10,000
	deep := `{"type":"user","message":{"content":` + strings.Repeat(`[{"type":"tool_result","content":`, levels) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat("}]", levels) + "}}\n"
	wide := `{"type":"item.completed","item":{"type":"file_change","changes":[` + strings.Repeat("{},", 1_000_000) + "{}]}}\n"
	for name, line := range map[string]string{"claude": deep, "codex": wide} {
		events := 0
		d := decoder{read: formats[name], show: func(Event) error { events++; return nil }}
		began := time.Now()
		if err := d.add(hutch.Output{Stream: hutch.Stdout, Data: []byte(line)}); err != nil || events > maxElements {
			t.Errorf("%s: %d events, %v", name, events, err)
		}
		if took := time.Since(began); took > 10*time.Second { // it takes milliseconds; it used to take minutes
			t.Errorf("%s: a line of %d bytes took %v", name, len(line), took)
		}
	}
}

// TestLinesTakeRoom: a line of usual length is read even if the memory budget is used up. A longer line is cut to what
// the budget allows, and the budget is charged once for several such lines.
func TestLinesTakeRoom(t *testing.T) {
	t.Parallel()
	room, longest := 0, 0
	d := decoder{read: formats["text"], show: func(e Event) error { longest = max(longest, len(e.Text)); return nil }, take: func(n int) bool {
		if n > room {
			return false
		}
		room -= n
		return true
	}}
	print := func(text string) {
		for piece := range slices.Chunk([]byte(text), 32<<10) {
			if err := d.add(hutch.Output{Stream: hutch.Stdout, Data: piece}); err != nil {
				t.Fatal(err)
			}
		}
	}
	print(strings.Repeat("x", 60_000) + "\n")
	if longest != 60_000 {
		t.Errorf("without room a line has %d bytes", longest)
	}
	print(strings.Repeat("x", 32<<20) + "\n")
	if n := cap(d.pending[hutch.Stdout].text); n > 2*freeLine {
		t.Errorf("without room %d bytes are held", n)
	}
	room = 1 << 30
	for range 2 {
		print(strings.Repeat("x", 32<<20) + "\n")
	}
	if n := cap(d.pending[hutch.Stdout].text); n > 2*maxLine || 1<<30-room > held*(maxLine+freeLine) {
		t.Errorf("%d bytes are held, and %d were taken", n, 1<<30-room)
	}
	if err := d.add(hutch.Output{Stream: hutch.Stdout, Data: []byte("the beginning")}); err != nil {
		t.Fatal(err)
	}
	longest = 0
	if err := d.add(hutch.Output{Stream: hutch.Stdout, Lost: 1000, Data: []byte("end\n")}); err != nil || longest != len("end") {
		t.Errorf("around what was lost: %d bytes, %v", longest, err)
	}
}

// TestLongLog: a line that an agent prints to stderr is cut to the same length as the text of an event.
func TestLongLog(t *testing.T) {
	t.Parallel()
	longest := 0
	d := decoder{read: formats["text"], show: func(e Event) error { longest = max(longest, len(e.Text)); return nil }}
	if err := d.add(hutch.Output{Stream: hutch.Stderr, Data: []byte(strings.Repeat("x", 1<<20) + "\n")}); err != nil || longest > maxText+10 {
		t.Errorf("a line gave a text of %d bytes, %v", longest, err)
	}
}

// TestUsageThatJSONHasNot: an agent whose reported costs add up to infinity, which JSON does not have, still has a
// result.
func TestUsageThatJSONHasNot(t *testing.T) {
	t.Parallel()
	d := decoder{read: formats["claude"], show: func(Event) error { return nil }}
	line := []byte(`{"type":"result","subtype":"success","total_cost_usd":1e308}` + "\n")
	for range 2 {
		if err := d.add(hutch.Output{Stream: hutch.Stdout, Data: line}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := json.Marshal(hutch.AgentResult{Usage: d.usage}); err != nil {
		t.Error(err)
	}
}

func FuzzFormats(f *testing.F) {
	f.Add("claude", []byte(`{"type":"assistant","message":{"content":[{"type":"text","text":"hi"}]}}`))
	f.Add("codex", []byte(`{"type":"item.completed","item":{}}`))
	f.Fuzz(func(t *testing.T, name string, line []byte) {
		if formats[name] == nil {
			return
		}
		d := decoder{read: formats[name], show: func(e Event) error {
			if len(e.Text) > maxText+len(" …") || e.Type == "" {
				t.Errorf("%+v", e)
			}
			return nil
		}}
		if d.add(hutch.Output{Stream: hutch.Stdout, Data: line}) != nil || d.close() != nil {
			t.Error("an error")
		}
	})
}
