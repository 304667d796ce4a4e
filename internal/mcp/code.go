package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
)

// Limits on the images of a run that a call shows.
const (
	maxImages     = 8
	maxImageBytes = 4 << 20
)

// runCode runs code in a context and prints its values as an interactive prompt would. Images are returned in addition
// to the text.
func (s *server) runCode(ctx context.Context, c *call, in execArgs, out func(hutch.Output) error) (hutch.ExecResult, error) {
	began := time.Now()
	p := &prompt{out: out}
	res, err := s.svc.RunCode(ctx, c.sandbox, hutch.RunRequest{
		ContextID: in.SessionID, Language: in.Language, Code: in.Command, Dir: in.Dir, Env: in.Env, Secrets: in.Secrets, Timeout: in.Timeout, MaxOutput: maxShown,
	}, func(e hutch.RunEvent) error { return p.event(c, e) })
	if err == nil {
		c.state = state(res)
	}
	if c.state != "" && !res.TimedOut { // otherwise the state is part of the error
		p.stderr.WriteString("[" + c.state + "]\n")
	}
	return hutch.ExecResult{
		SandboxID: c.sandbox, Command: in.Command, ExitCode: res.ExitCode, TimedOut: res.TimedOut, Truncated: res.Truncated,
		Stdout: append(res.Stdout, p.values.Bytes()...), Stderr: append(res.Stderr, p.stderr.Bytes()...),
		Duration: time.Since(began), Timestamp: began.UTC(), Denied: res.Denied,
	}, err
}

// state describes in words an unexpected end of the interpreter.
func state(res hutch.RunResult) string {
	switch {
	case res.TimedOut && !res.Ended:
		return "the interpreter was interrupted, and has kept its variables"
	case res.Ended:
		return "the interpreter has ended: its variables are gone, and the next call in this session gets a fresh one"
	case res.Fresh && res.Executions > 1:
		return "this interpreter is a fresh one: what earlier calls in this session defined is gone"
	}
	return ""
}

// prompt prints values and errors as an interactive prompt would.
type prompt struct {
	out            func(hutch.Output) error
	values, stderr bytes.Buffer
}

func (p *prompt) event(c *call, e hutch.RunEvent) error {
	switch {
	case e.Output != nil:
		return p.out(*e.Output)
	case e.Error != nil:
		return p.write(&p.stderr, hutch.Stderr, strings.TrimSuffix(e.Error.Traceback, "\n"))
	case e.Result == nil:
		return nil
	}
	if image := imageOf(*e.Result); image != nil && len(c.images) < maxImages {
		c.images = append(c.images, image)
	}
	return p.write(&p.values, hutch.Stdout, e.Result.Text())
}

func (p *prompt) write(to *bytes.Buffer, stream hutch.Stream, text string) error {
	if to.Len() < 2*maxShown {
		to.WriteString(text[:min(len(text), maxShown)] + "\n")
	}
	return p.out(hutch.Output{Stream: stream, Data: []byte(text + "\n")})
}

// imageOf returns the image of a value; nil if the value has no image or the image is too large.
func imageOf(r hutch.CodeResult) sdk.Content {
	for _, mime := range []string{"image/png", "image/jpeg"} {
		var data []byte // base64 in JSON
		if json.Unmarshal(r.Data[mime], &data) == nil && len(data) > 0 && len(data) <= maxImageBytes {
			return &sdk.ImageContent{Data: data, MIMEType: mime}
		}
	}
	return nil
}
