package stream

import (
	"bytes"
	"strings"

	"hutch"
	"hutch/internal/problem"
)

// Run is the body of a run call. It adds the standard input, which hutch.RunRequest does not have in JSON. In a stream
// of events, output has the same form as that of a command; a value is sent as the event result, an error of the code
// as exception, and a request for input as input. The last event is end, with the hutch.RunResult, or error, with
// problem details. Over a WebSocket everything except the output is a [RunNote].
type Run struct {
	hutch.RunRequest
	Text   string `json:"stdin,omitempty"`
	Binary []byte `json:"stdinBase64,omitempty"`
	Open   bool   `json:"openStdin,omitempty"` // the input follows; WebSocket only
}

// RunNote is a server's text message about a run. One field is set; End and
// Error are the last.
type RunNote struct {
	Stdin     int64               `json:"stdin,omitempty"` // bytes read so far
	Result    *hutch.CodeResult   `json:"result,omitempty"`
	Exception *hutch.CodeError    `json:"exception,omitempty"`
	Input     *hutch.InputRequest `json:"input,omitempty"`
	End       *hutch.RunResult    `json:"end,omitempty"`
	Error     *problem.Details    `json:"error,omitempty"`
}

// Request returns the run with the standard input that came with it.
func (r Run) Request() (hutch.RunRequest, error) {
	req := r.RunRequest
	switch {
	case r.Text != "" && len(r.Binary) > 0 || r.Open && (r.Text != "" || len(r.Binary) > 0):
		return req, hutch.Errorf(hutch.Invalid, "give one of stdin, stdinBase64 and openStdin")
	case r.Text != "":
		req.Stdin = strings.NewReader(r.Text)
	case len(r.Binary) > 0:
		req.Stdin = bytes.NewReader(r.Binary)
	}
	return req, nil
}
