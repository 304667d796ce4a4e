package coding

import (
	"fmt"
	"strings"
	"testing"

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
