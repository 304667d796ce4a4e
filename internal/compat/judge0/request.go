package judge0

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"hutch"
)

// request is a submission of a client. A missing field is nil.
type request struct {
	Source    *string `json:"source_code"`
	Language  *number `json:"language_id"`
	Compiler  string  `json:"compiler_options"`
	Arguments string  `json:"command_line_arguments"`
	Stdin     *string `json:"stdin"`
	Expected  *string `json:"expected_output"`
	Runs      *number `json:"number_of_runs"`
	CPU       *number `json:"cpu_time_limit"`  // s
	Extra     *number `json:"cpu_extra_time"`  // s
	Wall      *number `json:"wall_time_limit"` // s
	Memory    *number `json:"memory_limit"`    // KB
	Stack     *number `json:"stack_limit"`     // KB
	Processes *number `json:"max_processes_and_or_threads"`
	PerTime   *bool   `json:"enable_per_process_and_thread_time_limit"`
	PerMemory *bool   `json:"enable_per_process_and_thread_memory_limit"`
	File      *number `json:"max_file_size"` // KB
	Merge     *bool   `json:"redirect_stderr_to_stdout"`
	Callback  *string `json:"callback_url"`
	Files     *string `json:"additional_files"`
	Network   *bool   `json:"enable_network"`
}

// number is a number in JSON, also in quotes, as Judge0 accepts it.
type number float64

func (n *number) UnmarshalJSON(b []byte) error {
	text := strings.TrimSpace(string(bytes.Trim(b, `"`)))
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != f || len(b) > 64 {
		return &json.UnmarshalTypeError{Value: "value that is not a number", Type: reflect.TypeFor[number]()}
	}
	*n = number(f)
	return nil
}

// faults are the errors in a submission, by field: the body of status 422.
type faults map[string][]string

func (f faults) Error() string { return fmt.Sprintf("%d fields are wrong", len(f)) }

func (f faults) add(field, format string, args ...any) {
	f[field] = append(f[field], fmt.Sprintf(format, args...))
}

// limit is a number of a submission with its bounds, which are Judge0's own.
type limit struct {
	name         string
	given        **number
	usual        number
	least, most  number
	leastAllowed bool // least itself is allowed
}

// limits returns the limits of a submission. A missing number gets the default.
func (q *request) limits() []limit {
	return []limit{
		{"number_of_runs", &q.Runs, 1, 0, 1, false},
		{"cpu_time_limit", &q.CPU, 5, 0, 15, true},
		{"cpu_extra_time", &q.Extra, 1, 0, 5, true},
		{"wall_time_limit", &q.Wall, 10, 1, 20, true},
		{"memory_limit", &q.Memory, 128000, 2048, 512000, true},
		{"stack_limit", &q.Stack, 64000, 0, 128000, true},
		{"max_processes_and_or_threads", &q.Processes, 60, 0, 120, false},
		{"max_file_size", &q.File, 1024, 0, 4096, true},
	}
}

// check decodes the texts and fills in missing fields, or returns an error.
func (q *request) check(encoded bool) (language, error) {
	wrong := faults{}
	if encoded {
		for name, text := range map[string]*string{"source_code": q.Source, "stdin": q.Stdin, "expected_output": q.Expected} {
			if text != nil && !decode(text) {
				wrong.add(name, "is not base64")
			}
		}
	}
	l := q.checkProgram(wrong)
	for _, m := range q.limits() {
		m.check(wrong)
	}
	q.checkAllowed(wrong, l)
	if len(wrong) > 0 {
		return l, wrong
	}
	return l, nil
}

func (q *request) checkProgram(wrong faults) language {
	switch {
	case wrong["source_code"] != nil:
	case q.Source == nil || strings.TrimSpace(*q.Source) == "":
		wrong.add("source_code", "can't be blank")
	case len(*q.Source) > hutch.MaxCommand:
		wrong.add("source_code", "is too long (maximum is %d bytes)", hutch.MaxCommand)
	case strings.Contains(*q.Source, "\x00"):
		wrong.add("source_code", "contains a NUL byte")
	}
	if q.Language == nil {
		wrong.add("language_id", "can't be blank")
		return language{}
	}
	id := int(max(-1, min(*q.Language, 1e6)))
	l, ok := find(id)
	if !ok || number(id) != *q.Language {
		wrong.add("language_id", "language with id %v doesn't exist", *q.Language)
	}
	return l
}

func (m limit) check(wrong faults) {
	if *m.given == nil {
		*m.given = &m.usual
		return
	}
	switch n := **m.given; {
	case n < m.least:
		fallthrough
	case n == m.least && !m.leastAllowed:
		than := "greater than"
		if m.leastAllowed {
			than = "greater than or equal to"
		}
		wrong.add(m.name, "must be %s %v", than, m.least)
	case n > m.most:
		wrong.add(m.name, "must be less than or equal to %v", m.most)
	}
}

// checkAllowed refuses features that this server does not have, in the words that Judge0 uses for features that its
// operator turned off.
func (q *request) checkAllowed(wrong faults, l language) {
	is := func(p *bool) bool { return p != nil && *p }
	set := func(p *string) bool { return p != nil && *p != "" }
	if is(q.PerTime) {
		wrong.add("enable_per_process_and_thread_time_limit", "this option cannot be enabled")
	}
	if is(q.PerMemory) {
		wrong.add("enable_per_process_and_thread_memory_limit", "this option cannot be enabled")
	}
	if set(q.Callback) {
		wrong.add("callback_url", "setting callback is not allowed")
	}
	if set(q.Files) {
		wrong.add("additional_files", "setting additional files is not allowed")
	}
	if is(q.Network) {
		wrong.add("enable_network", "enabling network is not allowed")
	}
	for name, text := range map[string]string{"compiler_options": q.Compiler, "command_line_arguments": q.Arguments} {
		switch {
		case len(text) > 512:
			wrong.add(name, "is too long (maximum is 512 characters)")
		case strings.Contains(text, "\x00"):
			wrong.add(name, "contains a NUL byte")
		}
	}
	if q.Compiler != "" && l.name != "" && l.compile == "" {
		wrong.add("compiler_options", "setting compiler options is only allowed for compiled languages")
	}
	if l.name != "" && l.run == "" && (q.Arguments != "" || is(q.Merge)) {
		wrong.add("command_line_arguments", "arguments and redirect_stderr_to_stdout are not allowed for %s", l.name)
	}
}

// decode decodes base64 in place. Line breaks in it, and missing padding, are allowed as in Judge0.
func decode(text *string) bool {
	plain := strings.TrimRight(strings.NewReplacer("\n", "", "\r", "").Replace(*text), "=")
	b, err := base64.RawStdEncoding.DecodeString(plain)
	*text = string(b)
	return err == nil
}

// size estimates the memory of a submission, in bytes.
func (q *request) size() int {
	n := 1000 + len(q.Compiler) + len(q.Arguments)
	for _, text := range []*string{q.Source, q.Stdin, q.Expected} {
		if text != nil {
			n += len(*text)
		}
	}
	return n
}
