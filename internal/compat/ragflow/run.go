package ragflow

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"unicode/utf8"

	"hutch"
	"hutch/internal/compat"
)

// program is the body of a run.
type program struct {
	Code      *string                    `json:"code_b64"`
	Language  *string                    `json:"language"`
	Arguments map[string]json.RawMessage `json:"arguments"`
}

var (
	//go:embed call.py
	callPython string
	//go:embed call.js
	callNode string
)

// job is a run that was checked.
type job struct {
	language, caller string
	input            input
}

// input is what the calling program reads.
type input struct {
	Code      string                     `json:"code"`
	Arguments map[string]json.RawMessage `json:"arguments"`
	Mark      string                     `json:"mark"` // begins the line with the result
}

func (h *Handler) read(w http.ResponseWriter, r *http.Request) (job, error) {
	if err := compat.CheckQuery(r); err != nil {
		return job{}, err
	}
	var p program
	if err := compat.ReadJSON(w, r, &p); err != nil {
		return job{}, err
	}
	return p.job()
}

// job checks a program, and refuses a run that no server can carry out.
func (p program) job() (job, error) {
	if p.Code == nil {
		return job{}, hutch.Errorf(hutch.Invalid, "code_b64 is required: the code in base64")
	}
	code, err := base64.StdEncoding.DecodeString(*p.Code)
	if err != nil || !utf8.Valid(code) {
		return job{}, hutch.Errorf(hutch.Invalid, "code_b64 is not base64 of UTF-8")
	}
	j := job{input: input{Code: string(code), Arguments: p.Arguments, Mark: "__RESULT_" + rand.Text() + "__:"}}
	if j.input.Arguments == nil {
		j.input.Arguments = map[string]json.RawMessage{}
	}
	switch {
	case p.Language == nil || *p.Language == "python":
		j.language, j.caller = "python", callPython
	case *p.Language == "nodejs":
		j.language, j.caller = "javascript", callNode
	default:
		return job{}, hutch.Errorf(hutch.Invalid, "language is %.40q: use python or nodejs", *p.Language)
	}
	return j, nil
}

// result is the answer of a run.
type result struct {
	Status       string     `json:"status"`
	Stdout       string     `json:"stdout"`
	Stderr       string     `json:"stderr"`
	ExitCode     int        `json:"exit_code"`
	Detail       *string    `json:"detail"`
	Time         *float64   `json:"time_used_ms"`
	Memory       *float64   `json:"memory_used_kb"` // not known
	Limit        *string    `json:"resource_limit_type"`
	Unauthorized *string    `json:"unauthorized_access_type"`
	RuntimeError *string    `json:"runtime_error_type"`
	Artifacts    []artifact `json:"artifacts"`
	Result       *value     `json:"result"`
}

// The values of status.
const (
	statusSuccess = "success"
	statusProgram = "program_error"
	statusLimit   = "resource_limit_exceeded"
	statusDenied  = "unauthorized_access"
	statusRunner  = "program_runner_error"
)

// value is the value that main returned.
type value struct {
	Present bool            `json:"present"`
	Value   json.RawMessage `json:"value"`
	Type    string          `json:"type"`
}

// maxOutput is how many bytes a run can write to stdout with its result, and to stderr.
const maxOutput = 8 << 20

// execute runs a job in its own sandbox, with the default network of new sandboxes.
func (h *Handler) execute(ctx context.Context, j job) (result, error) {
	in, err := json.Marshal(j.input)
	if err != nil {
		return result{}, err
	}
	if !compat.Take(ctx, len(in)) {
		return result{}, compat.ErrNoRoom
	}
	req := hutch.ExecRequest{Language: j.language, Command: j.caller, Stdin: bytes.NewReader(in), Timeout: hutch.InSeconds(h.timeout), StreamOnly: true}
	out := compat.Collected{Max: maxOutput}
	var answer result
	err = compat.Once(ctx, h.svc, h.log, hutch.CreateRequest{Image: h.image}, h.timeout, func(sandbox string) error {
		res, err := h.svc.Exec(ctx, sandbox, req, out.Add(ctx))
		if err != nil && out.Full == "" {
			return err
		}
		answer = describe(res, &out, j.input.Mark)
		if answer.Status == statusSuccess {
			return h.collect(ctx, sandbox, &answer)
		}
		return nil
	})
	return answer, err
}

// describe describes the end of a run in the words of RAGFlow's executor.
func describe(res hutch.ExecResult, out *compat.Collected, mark string) result {
	ms := float64(res.Duration.Microseconds()) / 1000
	r := result{Status: statusProgram, Stderr: out.Stderr(), ExitCode: res.ExitCode, Time: &ms, Artifacts: []artifact{}}
	limit := func(kind string, code int, words string) { // the wording is the one of RAGFlow's executor, with more details
		r.Status, r.Limit, r.ExitCode, r.Stderr = statusLimit, &kind, code, words
	}
	switch {
	case out.Full != "":
		limit("output", -1, "the program wrote more than 8 MiB to "+string(out.Full))
	case res.TimedOut:
		limit("time", -124, "Execution timeout")
	case res.Limit == "memory" || res.ExitCode == 137:
		limit("memory", -137, "Memory limit exceeded (killed by OOM)")
	case res.Limit != "":
		limit(res.Limit, -1, "the limit of the sandbox is reached: "+res.Limit)
	case res.ExitCode == 0:
		r.Status = statusSuccess
		r.Stdout, r.Result = split(out.Stdout(), mark)
	case strings.Contains(r.Stderr, "Permission denied"):
		r.Status, r.Unauthorized = statusDenied, text("file_access")
	case strings.Contains(r.Stderr, "Operation not permitted"):
		r.Status, r.Unauthorized = statusDenied, text("disallowed_syscall")
	case strings.Contains(r.Stderr, "MemoryError"):
		r.Status, r.Limit = statusLimit, text("memory")
	default:
		r.RuntimeError = text("nonzero_exit")
	}
	return r
}

// split separates the code's output from main's result. The calling program ends the last line of the code itself, so
// that line feed is not part of the code's output.
func split(stdout, mark string) (string, *value) {
	i := strings.LastIndex(stdout, "\n"+mark)
	if i < 0 {
		return stdout, nil
	}
	printed, rest := stdout[:i], stdout[i+1+len(mark):]
	line, after, _ := strings.Cut(rest, "\n")
	if !json.Valid([]byte(line)) {
		return stdout, nil
	}
	return printed + after, &value{Present: true, Value: json.RawMessage(line), Type: "json"}
}
