package worker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"

	"hutch"
	"hutch/internal/jsonfault"
)

// maxText is the longest text of one result, in bytes.
const maxText = 100 << 10

// tool is one of the six tools; In is its input.
type tool[In any] struct {
	*session
	name, about string
	run         func(ctx context.Context, s *session, in In) (string, error)
}

func newTool[In any](s *session, name, about string, run func(context.Context, *session, In) (string, error)) anthropic.BetaTool {
	return &tool[In]{session: s, name: name, about: about, run: run}
}

func (t *tool[In]) Name() string        { return t.name }
func (t *tool[In]) Description() string { return t.about }

// InputSchema is not used: the API gives the agent the schemas of its own tools.
func (t *tool[In]) InputSchema() anthropic.BetaToolInputSchemaParam {
	return anthropic.BetaToolInputSchemaParam{}
}

// errHandedBack is the result of a call that is not posted.
var errHandedBack = errors.New("the session was handed back before the call ended")

// Execute runs one call. If it returns an error, the agent reads the error.
func (t *tool[In]) Execute(ctx context.Context, raw json.RawMessage) ([]anthropic.BetaToolResultBlockParamContentUnion, error) {
	if !t.calls.enter() {
		t.withheld.Store(true)
		return nil, errHandedBack
	}
	defer t.calls.leave()
	t.withheld.Store(false) // the user may have interrupted an earlier call; its session continues
	text, err := t.call(ctx, raw)
	if errors.Is(ctx.Err(), context.Canceled) { // the worker stops, the lease is lost, or the user interrupts
		t.withheld.Store(true)
		return nil, errHandedBack
	}
	if err != nil {
		return nil, errors.New(clip(err.Error()))
	}
	return []anthropic.BetaToolResultBlockParamContentUnion{{OfText: &anthropic.BetaTextBlockParam{Text: clip(text)}}}, nil
}

func (t *tool[In]) call(ctx context.Context, raw json.RawMessage) (string, error) {
	var in In
	if err := json.Unmarshal(raw, &in); err != nil {
		return "", fmt.Errorf("the input of %s is wrong: %s", t.name, inputProblem(raw, &in, err))
	}
	if err := t.prepare(ctx); err != nil {
		return "", fmt.Errorf("the sandbox of this session could not be prepared: %s", hutch.AsError(err))
	}
	text, err := t.run(ctx, t.session, in)
	if e, ok := errors.AsType[*hutch.Error](err); ok {
		if about, _ := e.About(); about == hutch.AboutSandbox || e.Kind == hutch.NotFound && about == "" {
			t.forget()
		}
		return "", fmt.Errorf("%s: %s", t.name, hutch.AsError(err))
	}
	return text, err
}

// inputProblem describes an error of a JSON decoder without the names of Go's types.
func inputProblem(raw json.RawMessage, in any, err error) string {
	if f := jsonfault.Find(raw, in, err); f != nil && f.Found != "" {
		return fmt.Sprintf("%s is %s and must be %s", cmp.Or(f.Path, "it"), f.Found, f.Want)
	}
	return jsonfault.Explain(raw, in, err).Message
}

// clip bounds a text, and makes it valid UTF-8.
func clip(s string) string {
	if len(s) > maxText {
		half := maxText / 2
		s = s[:half] + "\n[the middle was left out: " + fmt.Sprint(len(s)-2*half) + " bytes]\n" + s[len(s)-half:]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// isBinary reports whether bytes are not text, by the same test as grep.
func isBinary(b []byte) bool { return bytes.IndexByte(b[:min(len(b), 8<<10)], 0) >= 0 }
