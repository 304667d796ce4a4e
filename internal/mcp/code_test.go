package mcp

import (
	"encoding/json"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
)

func TestImageOf(t *testing.T) {
	png := hutch.CodeResult{Data: map[string]json.RawMessage{"text/plain": json.RawMessage(`"x"`), "image/png": json.RawMessage(`"aGk="`)}}
	if c, ok := imageOf(png).(*sdk.ImageContent); !ok || string(c.Data) != "hi" || c.MIMEType != "image/png" {
		t.Errorf("%+v", c)
	}
	for _, data := range []string{`"no base64"`, `1`, `""`} {
		if c := imageOf(hutch.CodeResult{Data: map[string]json.RawMessage{"image/png": json.RawMessage(data)}}); c != nil {
			t.Errorf("%s: %+v", data, c)
		}
	}
}

func TestPromptKeepsValuesAndErrors(t *testing.T) {
	var shown string
	p := &prompt{out: func(o hutch.Output) error { shown += string(o.Data); return nil }}
	c := &call{}
	for _, e := range []hutch.RunEvent{
		{Output: &hutch.Output{Stream: hutch.Stdout, Data: []byte("out\n")}},
		{Result: &hutch.CodeResult{Data: map[string]json.RawMessage{"text/plain": json.RawMessage(`"42"`), "image/png": json.RawMessage(`"aGk="`)}}},
		{Error: &hutch.CodeError{Traceback: "E: no\n"}},
	} {
		if err := p.event(c, e); err != nil {
			t.Fatal(err)
		}
	}
	if shown != "out\n42\nE: no\n" || p.values.String() != "42\n" || p.stderr.String() != "E: no\n" || len(c.images) != 1 {
		t.Errorf("%q %q %q %d", shown, p.values.String(), p.stderr.String(), len(c.images))
	}
}
