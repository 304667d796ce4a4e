package jupyter

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"hutch"
	"hutch/internal/compat"
	"hutch/internal/flowcontrol"
	"hutch/internal/text"
)

// execution is the content of an execute_request.
type execution struct {
	Code        string      `json:"code"`
	Silent      bool        `json:"silent"`
	Store       *bool       `json:"store_history"`
	Expressions expressions `json:"user_expressions"`
	Stdin       *bool       `json:"allow_stdin"`
	StopOnError *bool       `json:"stop_on_error"`
}

// expressions are what a client wants evaluated after the code has run, by name.
type expressions map[string]string

// maxExpressions bounds the expressions of a request, in bytes of JSON: the answer to each expression is much longer.
const maxExpressions = 64 << 10

// UnmarshalJSON implements json.Unmarshaler.
func (e *expressions) UnmarshalJSON(b []byte) error {
	if len(b) > maxExpressions {
		return unreadable("the user_expressions have %d bytes: at most %d are allowed", len(b), maxExpressions)
	}
	return json.Unmarshal(b, (*map[string]string)(e))
}

func isTrue(given *bool) bool { return given == nil || *given }

// done is the answer to code that ran.
type done struct {
	Status  string         `json:"status"`
	Count   int            `json:"execution_count"`
	Payload []any          `json:"payload"`
	Values  map[string]any `json:"user_expressions"`
}

// run is an execute_request that is being carried out.
type run struct {
	*kernel
	*task
	execution
	count int
	cut   map[hutch.Stream][]byte // the first bytes of an incomplete character
	shown bool                    // the error was published
}

const maxInput = 1 << 20 // bytes of answers that code has not read

// execute runs code and returns the answer.
func (k *kernel) execute(t *task) any {
	x := &run{kernel: k, task: t, cut: map[hutch.Stream][]byte{}}
	if err := json.Unmarshal(t.content, &x.execution); err != nil {
		if hutch.KindOf(err) == hutch.Invalid {
			return failureOf(err)
		}
		return failureOf(unreadable("the content of execute_request cannot be read: it needs code, as a string"))
	}
	stores := isTrue(x.Store) && !x.Silent
	x.count = k.begin(x.Code, stores)
	if !x.Silent {
		k.publish("execute_input", t.parent, map[string]any{"code": x.Code, "execution_count": x.count})
	}
	var f *failure
	if strings.TrimSpace(x.Code) != "" {
		f = x.do(stores)
	}
	switch {
	case t.forgotten():
		return map[string]any{"status": "aborted", "execution_count": x.count}
	case f != nil:
		f.Count = x.count
		if !x.shown && f.Name != "" {
			k.publish("error", t.parent, map[string]any{"ename": f.Name, "evalue": f.Value, "traceback": f.Traceback})
		}
		if isTrue(x.StopOnError) {
			k.abortWaiting()
		}
		return f
	}
	return done{"ok", x.count, []any{}, k.expressions(t, x.Expressions)}
}

// begin counts a run, and returns its number.
func (k *kernel) begin(code string, stores bool) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !stores || strings.TrimSpace(code) == "" {
		return k.count
	}
	k.count++
	k.history = append(k.history, input{k.count, code})
	k.size += k.history[len(k.history)-1].size()
	for k.size > maxHistory {
		k.size -= k.history[0].size()
		k.history = k.history[1:]
	}
	return k.count
}

// do runs the code, and returns how it failed, or nil.
func (x *run) do(stores bool) *failure {
	req := x.request(x.Code, !stores)
	if isTrue(x.Stdin) {
		x.input = flowcontrol.NewQueue(maxInput, func(int64) {})
		defer x.input.End(io.EOF) // so that no code waits for more input
		req.Stdin, req.Env["HUTCH_PROMPT"] = x.input, "0"
	}
	if err := req.Check(); err != nil {
		f := failureOf(err)
		return &f
	}
	res, err := x.h.svc.RunCode(x.ctx, x.sandbox(), req, x.event)
	x.endOutput()
	x.noteRestart(res)
	x.tellLoss()
	switch {
	case err != nil && compat.Missing(err):
		x.h.forget(x.known)
		fallthrough
	case err != nil:
		return x.broken(err)
	case res.Error != nil:
		return &failure{Status: "error", Name: res.Error.Name, Value: res.Error.Message, Traceback: lines(res.Error)}
	case res.TimedOut:
		return &failure{Status: "error", Name: "Timeout", Value: "the run reached the server's time limit", Traceback: []string{"the run reached the server's time limit"}}
	case res.Limit != "":
		text := "a program of the run was ended, since the sandbox reached its limit of " + res.Limit
		return &failure{Status: "error", Name: "LimitReached", Value: text, Traceback: []string{text}}
	case res.Ended:
		return x.died("the interpreter ended: the next run gets a new one, without the state")
	case res.ExitCode != 0 && x.language() == "bash":
		return &failure{Status: "error", Value: strconv.Itoa(res.ExitCode), Traceback: []string{}}
	case res.ExitCode != 0:
		code := strconv.Itoa(res.ExitCode)
		return &failure{Status: "error", Name: "SystemExit", Value: code, Traceback: []string{"SystemExit: " + code}}
	}
	return nil
}

// request returns a run of code in the kernel.
func (x *run) request(code string, silent bool) hutch.RunRequest {
	return x.kernel.request(code, silent)
}

func (k *kernel) request(code string, silent bool) hutch.RunRequest {
	req := hutch.RunRequest{
		ContextID: k.context(), Language: k.language(), Code: code, Env: map[string]string{}, Timeout: hutch.InSeconds(k.h.longest), StreamOnly: true,
	}
	if silent {
		req.Env["HUTCH_SILENT"] = "1"
	}
	return req
}

func (k *kernel) language() string {
	s, _ := specOf(k.entry.Name) // kernelsIn has checked it
	return s.language
}

// tellLoss reports once that the interpreter was restarted although no request asked for it, for example when its
// sandbox woke from its files only.
func (x *run) tellLoss() {
	x.kernel.mu.Lock()
	lost := x.lost
	x.lost = false
	x.kernel.mu.Unlock()
	if lost {
		x.publish("stream", x.parent, map[string]any{"name": hutch.Stderr, "text": "hutch: the interpreter has started again since the last cell, so its variables are gone\n"})
	}
}

// noteRestart notes whether a run was the first in its interpreter, although the kernel had runs before.
func (k *kernel) noteRestart(res hutch.RunResult) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lost = k.lost || res.Fresh && k.ran
	k.ran = true
}

// broken returns the answer for a run that failed with an error.
func (x *run) broken(err error) *failure {
	if e := hutch.AsError(err); e.Kind == hutch.Exhausted && e.Limit() == "memory" {
		return x.died(e.Message)
	}
	if !x.forgotten() && hutch.KindOf(err) == hutch.Internal && x.ctx.Err() == nil {
		x.h.log.Error("run of a kernel", "sandbox", x.sandbox(), "err", err, "cause", errors.Unwrap(err))
	}
	f := failureOf(err)
	return &f
}

// died reports a lost interpreter, like a Jupyter server that has restarted it.
func (x *run) died(why string) *failure {
	f := failure{Status: "error", Name: "DeadKernel", Value: why, Traceback: []string{"DeadKernel: " + why}}
	x.publish("error", x.parent, map[string]any{"ename": f.Name, "evalue": f.Value, "traceback": f.Traceback})
	x.shown = true
	x.kernel.mu.Lock()
	x.kernel.count, x.kernel.ran = 0, false
	x.kernel.mu.Unlock()
	x.announce(restarting)
	x.announce(starting)
	return &f
}

func lines(e *hutch.CodeError) []string {
	if e.Traceback == "" {
		return []string{e.Name + ": " + e.Message}
	}
	return strings.Split(strings.TrimSuffix(e.Traceback, "\n"), "\n")
}

// event publishes an event of a run.
func (x *run) event(e hutch.RunEvent) error {
	switch {
	case e.Output != nil:
		x.output(e.Output.Stream, e.Output.Data)
	case e.Result != nil:
		x.result(*e.Result)
	case e.Error != nil:
		x.shown = true
		x.publish("error", x.parent, map[string]any{"ename": e.Error.Name, "evalue": e.Error.Message, "traceback": lines(e.Error)})
	case e.Input != nil:
		x.ask(*e.Input)
	}
	return nil
}

// output publishes text. An incomplete character waits for its other bytes.
func (x *run) output(stream hutch.Stream, data []byte) {
	whole := append(x.cut[stream], data...)
	n := len(whole) - text.Unfinished(whole)
	x.cut[stream] = bytes.Clone(whole[n:])
	if n > 0 {
		x.publish("stream", x.parent, map[string]any{"name": stream, "text": strings.ToValidUTF8(string(whole[:n]), "\uFFFD")})
	}
}

func (x *run) endOutput() {
	for _, stream := range []hutch.Stream{hutch.Stdout, hutch.Stderr} {
		if len(x.cut[stream]) > 0 {
			x.cut[stream] = nil
			x.publish("stream", x.parent, map[string]any{"name": stream, "text": "\uFFFD"})
		}
	}
}

// displayForm is the MIME type by which code names a result, updates a named one, or clears its output: see
// docs/contexts.md.
const displayForm = "application/vnd.hutch.display+json"

// shows is the content of a value in displayForm.
type shows struct {
	ID       string          `json:"id"`
	Update   bool            `json:"update"`
	Clear    bool            `json:"clear"`
	Wait     bool            `json:"wait"`
	Metadata json.RawMessage `json:"metadata"`
}

// result publishes a value.
func (x *run) result(r hutch.CodeResult) {
	var how shows
	if form, ok := r.Data[displayForm]; ok {
		json.Unmarshal(form, &how) // an invalid value changes nothing
		delete(r.Data, displayForm)
	}
	content := map[string]any{"data": r.Data, "metadata": none}
	if len(how.Metadata) > 0 && how.Metadata[0] == '{' {
		content["metadata"] = how.Metadata
	}
	if how.ID != "" {
		content["transient"] = map[string]string{"display_id": how.ID}
	}
	switch {
	case how.Clear:
		x.publish("clear_output", x.parent, map[string]bool{"wait": how.Wait})
	case r.Main && x.Silent:
	case r.Main:
		content["execution_count"] = x.count
		x.publish("execute_result", x.parent, content)
	case how.Update && how.ID != "":
		x.publish("update_display_data", x.parent, content)
	default:
		x.publish("display_data", x.parent, content)
	}
}

// ask asks the client that runs the code for a line of input.
func (x *run) ask(req hutch.InputRequest) {
	x.task.mu.Lock()
	open := x.input != nil
	x.asked = open
	x.task.mu.Unlock()
	if open {
		x.reply(x.task, stdin, "input_request", map[string]any{"prompt": req.Prompt, "password": req.Password})
	}
}

// answered passes the answer of a client to the code that asked.
func (k *kernel) answered(t *task) {
	k.mu.Lock()
	current := k.current
	k.mu.Unlock()
	var content struct {
		Value string `json:"value"`
	}
	if t.header.Type != "input_reply" || current == nil || json.Unmarshal(t.content, &content) != nil {
		return
	}
	if current.client != t.client && (current.header.Session == "" || current.header.Session != t.header.Session) {
		return // the question was for another client
	}
	current.mu.Lock()
	defer current.mu.Unlock()
	if current.asked {
		current.asked = false
		current.input.Add([]byte(content.Value + "\n"))
	}
}
