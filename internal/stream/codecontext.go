package stream

import (
	"bytes"
	"strings"

	"hutch"
)

// Run is the body of a run call, with the standard input that
// hutch.RunRequest has not in JSON. As events, output is as that of a command;
// a value is a result, an error of the code an exception, and the last event is
// end with the hutch.RunResult, or error with problem details.
type Run struct {
	hutch.RunRequest
	Text   string `json:"stdin,omitempty"`
	Binary []byte `json:"stdinBase64,omitempty"`
}

// Request is the run with the standard input that came with it.
func (r Run) Request() (hutch.RunRequest, error) {
	req := r.RunRequest
	switch {
	case r.Text != "" && len(r.Binary) > 0:
		return req, hutch.Errorf(hutch.Invalid, "give one of stdin and stdinBase64, not both")
	case r.Text != "":
		req.Stdin = strings.NewReader(r.Text)
	case len(r.Binary) > 0:
		req.Stdin = bytes.NewReader(r.Binary)
	}
	return req, nil
}
