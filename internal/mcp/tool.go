package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hutch/internal/caller"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/jsonfault"
)

// reply is a tool's answer: text for models, and the same facts as data for programs.
type reply struct {
	text string
	data any
}

// add registers a tool. It does not use the SDK's typed AddTool, which validates every result against its schema, hides
// a wrapped JSON-RPC error in a result, and reports wrong arguments in words for developers.
func add[In any](s *server, t *sdk.Tool, run func(context.Context, *call, In) (reply, error)) {
	schema := t.InputSchema.(*jsonschema.Schema)
	names := slices.Sorted(maps.Keys(schema.Properties))
	// Encoded here, because the SDK encodes the schema on every call of the modern era, and encoding raw bytes is
	// nearly free.
	t.InputSchema = inputJSON(schema)
	s.tools[t.Name] = func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		c := &call{s: s, req: req, tool: t.Name}
		ctx, release := c.identify(ctx)
		defer release()
		c.session = s.session(ctx, req.Session)
		trace, _ := req.Params.Meta["traceparent"].(string)
		ctx, cancel := s.sessions.scope(caller.WithTrace(ctx, trace), c.session)
		defer cancel()
		in, err := decode[In](req.Params.Arguments, t.Name, names)
		if err != nil {
			return c.fail(ctx, err)
		}
		out, err := guarded(ctx, c, in, run)
		if err != nil {
			return c.fail(ctx, err)
		}
		return &sdk.CallToolResult{
			Content:           append([]sdk.Content{&sdk.TextContent{Text: out.text}}, c.images...),
			StructuredContent: out.data,
		}, nil
	}
	s.sdk.AddTool(t, s.tools[t.Name])
}

// guarded runs a tool and turns a panic in it into that call's error.
func guarded[In any](ctx context.Context, c *call, in In, run func(context.Context, *call, In) (reply, error)) (out reply, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic in %s: %v\n%s", c.tool, r, debug.Stack())
		}
	}()
	return run(ctx, c, in)
}

// decode decodes a tool's arguments. Its errors say which argument is wrong and what it should be.
func decode[In any](raw json.RawMessage, tool string, names []string) (in In, err error) {
	if len(raw) == 0 {
		return in, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return in, explain(err, raw, &in, tool, names)
	}
	return in, nil
}

func explain(err error, raw json.RawMessage, in any, tool string, names []string) error {
	var given map[string]json.RawMessage
	if json.Unmarshal(raw, &given) != nil {
		return hutch.Errorf(hutch.Invalid, "the arguments of %s must be an object with %s", tool, list(names))
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(names, name) {
			return hutch.Errorf(hutch.Invalid, "%s has no argument %.40q: it takes %s", tool, name, list(names)).Naming(hutch.AboutField, name)
		}
	}
	if f := jsonfault.Find(raw, in, err); f != nil {
		argument, _, _ := strings.Cut(strings.ReplaceAll(f.Path, "[", "."), ".")
		switch {
		case f.Unknown:
			return hutch.Errorf(hutch.Invalid, "%s has no argument %.200q: leave it out, or look at tools/list", tool, f.Path).Naming(hutch.AboutField, argument)
		case f.Inside:
			return hutch.Errorf(hutch.Invalid, "the argument %s of %s has %s in it: give %s there", f.Path, tool, f.Found, f.Want).Naming(hutch.AboutField, argument)
		case f.Found != "":
			return hutch.Errorf(hutch.Invalid, "the argument %s of %s is %s and must be %s", f.Path, tool, f.Found, f.Want).Naming(hutch.AboutField, argument)
		}
	}
	if _, ok := errors.AsType[*time.ParseError](err); ok {
		return hutch.Errorf(hutch.Invalid, "a time given to %s is not in ISO 8601: write it as 2026-01-31T15:04:05Z", tool)
	}
	return hutch.Errorf(hutch.Invalid, "the arguments of %s do not fit its schema: look at tools/list", tool).Because(err)
}

func list(names []string) string { return strings.Join(names, ", ") }

// need returns an error if a required argument is missing.
func need(name, value, what string) error {
	if value != "" {
		return nil
	}
	return hutch.Errorf(hutch.Invalid, "the argument %s is missing: give %s", name, what).Naming(hutch.AboutField, name)
}

// schema derives the schema of a tool's arguments or result from their Go type.
func schema[T any](edit func(property map[string]*jsonschema.Schema)) *jsonschema.Schema {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		panic(err) // every type has a schema, unless there is a bug
	}
	simplify(s)
	if edit != nil {
		edit(s.Properties)
	}
	return s
}

// simplify removes null as a type of arrays and pointers: the APIs of some models accept no unions of types.
func simplify(s *jsonschema.Schema) {
	if len(s.Types) == 2 && s.Types[0] == "null" {
		s.Type, s.Types = s.Types[1], nil
	}
	if s.Items != nil {
		simplify(s.Items)
	}
	for _, p := range s.Properties {
		simplify(p)
	}
}

// inputJSON returns the schema of arguments as clients see it. It always has properties, because the APIs of some
// models require them.
func inputJSON(s *jsonschema.Schema) json.RawMessage {
	b := mustJSON(s)
	if len(s.Properties) > 0 {
		return b
	}
	var all map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		panic(err) // the schema was just encoded
	}
	all["properties"] = map[string]any{}
	return mustJSON(all)
}

func oneOf[T ~string](values ...T) []any {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
