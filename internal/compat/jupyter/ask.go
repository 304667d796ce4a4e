package jupyter

import (
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"

	"hutch"
)

// do answers one request of the channel shell, between the two states that clients wait for.
func (k *kernel) do(t *task) {
	k.report(busy, t.parent)
	k.extendLife(t)
	content := k.answer(t)
	if content != nil {
		k.reply(t, shell, replyType(t.header.Type), content)
	}
	k.report(idle, t.parent)
}

// extendLife postpones the end of the sandbox. It tries at most once a minute, because a refusal usually repeats.
func (k *kernel) extendLife(t *task) {
	if time.Since(k.stayed) < time.Minute {
		return
	}
	sb := k.box
	sb.ExpiresAt, k.stayed = k.ends, time.Now()
	k.ends = k.h.touch(t.ctx, sb)
}

// answer returns the content of the answer to a request; nil for a message without an answer.
func (k *kernel) answer(t *task) any {
	switch t.header.Type {
	case "execute_request":
		return k.execute(t)
	case "kernel_info_request":
		return k.info()
	case "complete_request":
		return k.complete(t)
	case "inspect_request":
		return k.inspect(t)
	case "is_complete_request":
		return k.isComplete(t)
	case "history_request":
		return k.inputs(t)
	case "comm_info_request":
		return map[string]any{"status": "ok", "comms": map[string]any{}}
	case "comm_open":
		k.closeComm(t)
		return nil
	case "shutdown_request":
		return k.shutdown(t)
	}
	return failureOf(hutch.Errorf(hutch.Unsupported, "this server does not answer %.60q", t.header.Type))
}

// control answers a request of the channel control, which waits for no run.
func (k *kernel) control(t *task) {
	var content any
	switch t.header.Type {
	case "interrupt_request":
		content = map[string]string{"status": "ok"}
		if err := k.h.stop(t.ctx, k.known); err != nil {
			content = failureOf(err)
		}
	case "kernel_info_request":
		content = k.info()
	case "shutdown_request":
		content = k.shutdown(t)
	default:
		content = failureOf(hutch.Errorf(hutch.Unsupported, "this server does not answer %.60q", t.header.Type))
	}
	k.finish(t, content)
}

func (k *kernel) info() any {
	s, _ := specOf(k.entry.Name) // kernelsIn has checked it
	return map[string]any{
		"status": "ok", "protocol_version": version, "implementation": "hutch", "implementation_version": "1", "language_info": s.info,
		"banner": s.title, "help_links": []any{}, "debugger": false, "supported_features": []string{},
	}
}

// shutdown ends a kernel, or restarts it. It sends the answer first, because the connection ends with the kernel.
func (k *kernel) shutdown(t *task) any {
	var content struct {
		Restart bool `json:"restart"`
	}
	json.Unmarshal(t.content, &content) // empty is a shutdown
	ctx := context.WithoutCancel(t.ctx)
	k.h.runs.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err := error(nil)
		if content.Restart {
			err = k.h.again(ctx, k.known)
		} else {
			err = k.h.end(ctx, k.known)
		}
		if err != nil {
			k.h.log.Warn("shut a kernel down", "sandbox", k.sandbox(), "err", err)
		}
	})
	return map[string]any{"status": "ok", "restart": content.Restart}
}

// closeComm refuses a comm, which needs a program at the other end.
func (k *kernel) closeComm(t *task) {
	var content struct {
		ID string `json:"comm_id"`
	}
	json.Unmarshal(t.content, &content) // on an error, nothing is closed
	k.publish("comm_close", t.parent, map[string]any{"comm_id": content.ID, "data": none})
}

// How long a question to the interpreter can take, and how long it can be.
const (
	askTime  = 10 * time.Second
	maxQuery = 512 << 10 // bytes
)

// query calls a function of the module hutch_notebook, outside of the user's code. Only Python's interpreter has this
// module. It reports whether answer was set. An answer is as untrusted as the code that the interpreter has run.
func (k *kernel) query(t *task, function string, answer any, args ...any) bool {
	if k.language() != "python" {
		return false
	}
	list, err := json.Marshal(args)
	if err != nil || len(list) > maxQuery {
		return false
	}
	quoted, _ := json.Marshal(string(list)) // JSON's strings of ASCII are Python's
	ctx, cancel := context.WithTimeout(t.ctx, askTime)
	defer cancel()
	req := k.request("__import__('hutch_notebook')."+function+"("+ascii(quoted)+")", true)
	found := false
	res, err := k.h.svc.RunCode(ctx, k.sandbox(), req, func(e hutch.RunEvent) error {
		if e.Result != nil && e.Result.Data[answerForm] != nil {
			found = json.Unmarshal(e.Result.Data[answerForm], answer) == nil
		}
		return nil
	})
	k.noteRestart(res)
	return err == nil && found
}

// answerForm is the MIME type of the interpreter's answers.
const answerForm = "application/vnd.hutch.notebook+json"

// ascii writes a JSON string with ASCII characters only, because Python knows two line ends that JSON does not.
func ascii(quoted []byte) string {
	var b strings.Builder
	for _, r := range string(quoted) {
		switch {
		case r < 0x7f:
			b.WriteRune(r)
		case r > 0xffff:
			b.WriteString(`\U` + hexOf(r, 8))
		default:
			b.WriteString(`\u` + hexOf(r, 4))
		}
	}
	return b.String()
}

func hexOf(r rune, digits int) string {
	const all = "0123456789abcdef"
	b := make([]byte, digits)
	for i := range b {
		b[digits-1-i] = all[r>>(4*i)&15]
	}
	return string(b)
}

// position is the common part of requests about code.
type position struct {
	Code   string `json:"code"`
	Cursor int    `json:"cursor_pos"`
	Detail int    `json:"detail_level"`
}

type completion struct {
	Status   string         `json:"status"`
	Matches  []string       `json:"matches"`
	Start    int            `json:"cursor_start"`
	End      int            `json:"cursor_end"`
	Metadata map[string]any `json:"metadata"`
}

func (k *kernel) complete(t *task) any {
	var p position
	if json.Unmarshal(t.content, &p) != nil {
		return failureOf(unreadable("the content of complete_request cannot be read"))
	}
	c := completion{Start: p.Cursor, End: p.Cursor}
	k.query(t, "complete", &c, p.Code, p.Cursor)
	c.Status, c.Metadata = "ok", map[string]any{}
	if c.Matches == nil {
		c.Matches = []string{}
	}
	return c
}

func (k *kernel) inspect(t *task) any {
	var p position
	if json.Unmarshal(t.content, &p) != nil {
		return failureOf(unreadable("the content of inspect_request cannot be read"))
	}
	data := map[string]json.RawMessage{}
	k.query(t, "inspect", &data, p.Code, p.Cursor, p.Detail)
	return map[string]any{"status": "ok", "found": len(data) > 0, "data": data, "metadata": none}
}

func (k *kernel) isComplete(t *task) any {
	var p position
	var a struct {
		Status string `json:"status"`
		Indent string `json:"indent"`
	}
	if json.Unmarshal(t.content, &p) != nil {
		return failureOf(unreadable("the content of is_complete_request cannot be read"))
	}
	k.query(t, "is_complete", &a, p.Code)
	switch a.Status {
	case "complete", "incomplete", "invalid":
		return a
	}
	return map[string]string{"status": "unknown"}
}

// expressions evaluates the expressions that came with code.
func (k *kernel) expressions(t *task, list expressions) map[string]any {
	values, found := map[string]any{}, map[string]json.RawMessage{}
	if len(list) == 0 {
		return values
	}
	fault := failureOf(hutch.Errorf(hutch.Unsupported, "user_expressions are evaluated in Python only"))
	if k.language() == "python" {
		k.query(t, "expressions", &found, list)
		fault = failureOf(hutch.Errorf(hutch.Internal, "the interpreter has not evaluated the user_expressions within %v", askTime))
	}
	for name := range list {
		if values[name] = fault; found[name] != nil {
			values[name] = found[name]
		}
	}
	return values
}

// inputs answers which code has run since the kernel started. Older history is not kept.
func (k *kernel) inputs(t *task) any {
	var q struct {
		Type    string `json:"hist_access_type"`
		Output  bool   `json:"output"`
		N       *int   `json:"n"`
		Start   int    `json:"start"`
		Stop    *int   `json:"stop"`
		Pattern string `json:"pattern"`
		Unique  bool   `json:"unique"`
	}
	if json.Unmarshal(t.content, &q) != nil {
		return failureOf(unreadable("the content of history_request cannot be read"))
	}
	if len(q.Pattern) > maxPattern {
		return failureOf(unreadable("the pattern has %d bytes: at most %d are allowed", len(q.Pattern), maxPattern))
	}
	k.mu.Lock()
	history := slices.Clone(k.history) // a search takes long, and others wait for the lock
	k.mu.Unlock()
	list := [][3]any{}
	seen := map[string]bool{}
	for i := len(history) - 1; i >= 0; i-- {
		in := history[i]
		if q.Type == "range" && (in.line < q.Start || q.Stop != nil && in.line >= *q.Stop) ||
			q.Type == "search" && (!matches(q.Pattern, in.code) || q.Unique && seen[in.code]) {
			continue
		}
		if q.Type != "range" && q.N != nil && len(list) >= *q.N {
			break
		}
		seen[in.code] = true
		var code any = in.code
		if q.Output {
			code = []any{in.code, nil}
		}
		list = append(list, [3]any{0, in.line, code})
	}
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return map[string]any{"status": "ok", "history": list}
}

// maxPattern limits a pattern, in bytes: the time of a search is proportional to the history times the pattern.
const maxPattern = 256

// matches reports whether a pattern with * and ? matches code, in which a slash is an ordinary character.
func matches(pattern, code string) bool {
	swap := strings.NewReplacer("/", "\x00", "[", `\[`, `\`, `\\`)
	ok, err := path.Match(swap.Replace(pattern), strings.ReplaceAll(code, "/", "\x00"))
	return ok && err == nil
}
