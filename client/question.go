package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"hutch"
	"hutch/internal/problem"
)

var _ hutch.Questions = (*Client)(nil)

// maxEvent limits one event of an answer, in bytes: the result holds output and files, and JSON can need six bytes for
// each of their bytes.
const maxEvent = 64 << 20

// Ask implements hutch.Questions. The events come as the server sends them.
func (c *Client) Ask(ctx context.Context, q hutch.Question, out func(hutch.AnswerEvent) error) (hutch.Answer, error) {
	to := endpoint{method: "POST", path: "/execute"}.check(q.Check())
	if out == nil {
		out = func(hutch.AnswerEvent) error { return nil }
	}
	resp, err := c.do(ctx, to, q, "text/event-stream")
	if err != nil {
		return hutch.Answer{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return hutch.Answer{}, executeRefusal(resp)
	}
	a, err := readAnswer(resp.Body, out)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return a, err
}

// executeRefusal returns the error in an answer of /execute, which has its own format.
func executeRefusal(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var said struct {
		Error string `json:"error"`
	}
	err := problem.Read(resp.StatusCode, body).Err()
	if json.Unmarshal(body, &said) == nil && said.Error != "" {
		err.Message = said.Error
	}
	if resp.StatusCode == http.StatusInternalServerError {
		err.Kind = hutch.Unavailable // something is wrong with the key or the model
	}
	return err
}

// readAnswer reads server-sent events up to the result.
func readAnswer(r io.Reader, out func(hutch.AnswerEvent) error) (hutch.Answer, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEvent)
	name := ""
	for lines.Scan() {
		line := lines.Bytes()
		if rest, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
			name = string(rest)
			continue
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue // a comment, or the end of an event
		}
		switch name {
		case "result":
			var a hutch.Answer
			return a, json.Unmarshal(data, &a)
		case "error":
			var said struct {
				Error string `json:"error"`
			}
			if err := json.Unmarshal(data, &said); err != nil {
				return hutch.Answer{}, err
			}
			return hutch.Answer{}, hutch.Errorf(hutch.Unavailable, "%s", said.Error)
		}
		var e hutch.AnswerEvent
		if err := json.Unmarshal(data, &e); err != nil {
			return hutch.Answer{}, err
		}
		if err := out(e); err != nil {
			return hutch.Answer{}, err
		}
	}
	return hutch.Answer{}, hutch.Errorf(hutch.Unavailable, "the answer broke off: ask again").Because(errors.Join(lines.Err(), io.ErrUnexpectedEOF))
}
