package judge0

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"hutch"
)

// The numbers of the states of a submission: waiting, running, and then how it ended.
const (
	inQueue = iota + 1
	processing
	accepted
	wrongAnswer
	timeLimit
	compilation
	segmentation
	fileSize
	floatingPoint
	aborted
	nonZero
	otherSignal
	internal
	execFormat
)

// descriptions are the texts of the statuses, from 1.
var descriptions = []string{
	"In Queue", "Processing", "Accepted", "Wrong Answer", "Time Limit Exceeded", "Compilation Error", "Runtime Error (SIGSEGV)", "Runtime Error (SIGXFSZ)",
	"Runtime Error (SIGFPE)", "Runtime Error (SIGABRT)", "Runtime Error (NZEC)", "Runtime Error (Other)", "Internal Error", "Exec Format Error",
}

type statusName struct {
	ID          int    `json:"id"`
	Description string `json:"description"`
}

func statusOf(id int) statusName { return statusName{id, descriptions[id-1]} }

func listStatuses(http.ResponseWriter, *http.Request) (int, any, error) {
	list := []statusName{}
	for i := range descriptions {
		list = append(list, statusOf(i+1))
	}
	return http.StatusOK, list, nil
}

// fields are all fields of an answer about a submission, with the functions that compute them. A text is base64 if the
// client requests that.
var fields = map[string]func(*submission) any{
	"token":                        func(s *submission) any { return s.token },
	"source_code":                  func(s *submission) any { return text(s.request.Source) },
	"language_id":                  func(s *submission) any { return int(*s.request.Language) },
	"stdin":                        func(s *submission) any { return text(s.request.Stdin) },
	"expected_output":              func(s *submission) any { return text(s.request.Expected) },
	"stdout":                       func(s *submission) any { return text(s.stdout) },
	"stderr":                       func(s *submission) any { return text(s.stderr) },
	"compile_output":               func(s *submission) any { return text(s.compileOutput) },
	"message":                      func(s *submission) any { return text(s.message) },
	"status_id":                    func(s *submission) any { return s.status },
	"status":                       func(s *submission) any { return statusOf(s.status) },
	"language":                     func(s *submission) any { return map[string]any{"id": s.language.id, "name": s.title} },
	"created_at":                   func(s *submission) any { return moment(s.created) },
	"queued_at":                    func(s *submission) any { return moment(s.created) },
	"started_at":                   func(s *submission) any { return moment(s.started) },
	"finished_at":                  func(s *submission) any { return moment(s.finished) },
	"updated_at":                   func(s *submission) any { return moment(latest(s.created, s.started, s.finished)) },
	"time":                         func(s *submission) any { return seconds(s.time) },
	"wall_time":                    func(s *submission) any { return seconds(s.wall) },
	"memory":                       func(s *submission) any { return numberOrNull(s.memory) },
	"exit_code":                    func(s *submission) any { return numberOrNull(s.exitCode) },
	"exit_signal":                  func(s *submission) any { return numberOrNull(s.signal) },
	"number_of_runs":               func(s *submission) any { return 1 },
	"compiler_options":             func(s *submission) any { return optional(s.request.Compiler) },
	"command_line_arguments":       func(s *submission) any { return optional(s.request.Arguments) },
	"cpu_time_limit":               func(s *submission) any { return decimal(s.request.CPU) },
	"cpu_extra_time":               func(s *submission) any { return decimal(s.request.Extra) },
	"wall_time_limit":              func(s *submission) any { return decimal(s.request.Wall) },
	"memory_limit":                 func(s *submission) any { return int(*s.request.Memory) },
	"stack_limit":                  func(s *submission) any { return int(*s.request.Stack) },
	"max_file_size":                func(s *submission) any { return int(*s.request.File) },
	"redirect_stderr_to_stdout":    func(s *submission) any { return s.request.merges() },
	"max_processes_and_or_threads": func(s *submission) any { return int(*s.request.Processes) },
	"enable_per_process_and_thread_time_limit":   func(*submission) any { return false },
	"enable_per_process_and_thread_memory_limit": func(*submission) any { return false },
	"enable_network":   func(*submission) any { return false },
	"callback_url":     func(*submission) any { return nil },
	"additional_files": func(*submission) any { return nil },
	"queue_host":       func(*submission) any { return nil },
	"execution_host":   func(*submission) any { return nil },
}

// usualFields are the fields of an answer when the client names no fields.
var usualFields = []string{"token", "time", "memory", "stdout", "stderr", "compile_output", "message", "status"}

// bytesOf is a text that is written as base64, or unchanged.
type bytesOf string

func text(p *string) any {
	if p == nil {
		return nil
	}
	return bytesOf(*p)
}

func optional(value string) any {
	if value == "" {
		return nil
	}
	return value
}

func numberOrNull(p *int) any {
	if p == nil {
		return nil
	}
	return *p
}

// seconds returns a time as Judge0 writes it.
func seconds(d *time.Duration) any {
	if d == nil {
		return nil
	}
	return strconv.FormatFloat(d.Seconds(), 'f', 3, 64)
}

func decimal(n *number) string {
	out := strconv.FormatFloat(float64(*n), 'f', -1, 64)
	if !strings.Contains(out, ".") {
		out += ".0"
	}
	return out
}

func moment(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

func latest(list ...time.Time) time.Time { return slices.MaxFunc(list, time.Time.Compare) }

// form is the form in which a client requests submissions.
type form struct {
	fields  []string
	encoded bool
}

// formOf reads the parameters fields and base64_encoded.
func formOf(r *http.Request) (form, error) {
	f := form{encoded: flag(r, "base64_encoded")}
	var unknown []string
	for name := range strings.SplitSeq(r.URL.Query().Get("fields"), ",") {
		switch {
		case name == "*":
			f.fields = nil
			for name := range fields {
				f.fields = append(f.fields, name)
			}
			return f, nil
		case name == "" || slices.Contains(f.fields, name):
		case fields[name] == nil:
			unknown = append(unknown, name)
		default:
			f.fields = append(f.fields, name)
		}
	}
	if unknown != nil {
		return f, hutch.Errorf(hutch.Invalid, "invalid fields: [%.200s]", strings.Join(unknown, ", "))
	}
	if f.fields == nil {
		f.fields = usualFields
	}
	return f, nil
}

// of returns a submission in the form, and whether all texts could be written. The store's mutex is held.
func (f form) of(s *submission) (answer map[string]any, ok bool) {
	answer, ok = map[string]any{}, true
	for _, name := range f.fields {
		v := fields[name](s)
		if t, isText := v.(bytesOf); isText {
			switch {
			case f.encoded:
				v = base64.StdEncoding.EncodeToString([]byte(t))
			case !utf8.ValidString(string(t)):
				ok = false
			default:
				v = string(t)
			}
		}
		answer[name] = v
	}
	return answer, ok
}
