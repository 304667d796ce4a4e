//go:build conformance

//lint:file-ignore SA1019 the suite calls what the protocol deprecates, too

package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// The protocol's conformance suite calls tools, prompts and resources by fixed names. In a build with the tag
// conformance, every server offers these in addition to its own tools.
func init() { fixtures = addFixtures }

func addFixtures(opt *sdk.ServerOptions) func(*sdk.Server) {
	opt.Capabilities = nil // everything that is registered below
	opt.CompletionHandler = func(context.Context, *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
		return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{}}}, nil
	}
	opt.SubscribeHandler = func(context.Context, *sdk.SubscribeRequest) error { return nil }
	opt.UnsubscribeHandler = func(context.Context, *sdk.UnsubscribeRequest) error { return nil }
	return func(s *sdk.Server) {
		addContentFixtures(s)
		addCallFixtures(s)
		addAskFixtures(s)
		addInputFixtures(s)
		addResourceFixtures(s)
		addPromptFixtures(s)
	}
}

// The smallest picture and the smallest sound.
var (
	pixel, _   = base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==")
	silence, _ = base64.StdEncoding.DecodeString("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")
)

func says(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

func embedded(uri string) sdk.Content {
	return &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: uri, MIMEType: "text/plain", Text: "an embedded resource"}}
}

// fixture adds a tool that accepts any arguments.
func fixture(s *sdk.Server, name string, run func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error)) {
	sdk.AddTool(s, &sdk.Tool{Name: name, Description: "of the conformance suite"},
		func(ctx context.Context, req *sdk.CallToolRequest, _ any) (*sdk.CallToolResult, any, error) {
			res, err := run(ctx, req)
			return res, nil, err
		})
}

func addContentFixtures(s *sdk.Server) {
	text := &sdk.TextContent{Text: "This is a simple text response for testing."}
	image := &sdk.ImageContent{Data: pixel, MIMEType: "image/png"}
	for name, content := range map[string][]sdk.Content{
		"test_simple_text":            {text},
		"test_image_content":          {image},
		"test_audio_content":          {&sdk.AudioContent{Data: silence, MIMEType: "audio/wav"}},
		"test_embedded_resource":      {embedded("test://embedded-resource")},
		"test_multiple_content_types": {text, image, embedded("test://mixed-content-resource")},
		"test_streaming_elicitation":  {text},
	} {
		fixture(s, name, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: content}, nil
		})
	}
}

func addCallFixtures(s *sdk.Server) {
	fixture(s, "test_error_handling", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return nil, errors.New("this tool intentionally returns an error for testing")
	})
	fixture(s, "test_tool_with_logging", func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		for _, step := range []string{"started", "processing", "completed"} {
			req.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: "Tool " + step})
		}
		return says("logged"), nil
	})
	fixture(s, "test_logging_tool", func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		req.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: "for who asked for it"})
		return says("logged"), nil
	})
	fixture(s, "test_tool_with_progress", func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		token := req.Params.GetProgressToken()
		for _, part := range []float64{0, 50, 100} {
			req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: part, Total: 100})
		}
		return says(fmt.Sprint(token)), nil
	})
	fixture(s, "test_reconnection", func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if req.Extra != nil && req.Extra.CloseSSEStream != nil {
			req.Extra.CloseSSEStream(sdk.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
			select { // the client must reconnect while the call still runs
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return says("still here"), nil
	})
	fixture(s, "test_missing_capability", func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if caps := req.ClientCapabilities(); caps != nil && caps.Sampling != nil {
			return says("the client can sample"), nil
		}
		data := sdk.MissingRequiredClientCapabilityData{RequiredCapabilities: &sdk.ClientCapabilities{Sampling: &sdk.SamplingCapabilities{}}}
		return nil, &jsonrpc.Error{Code: sdk.CodeMissingRequiredClientCapabilities, Message: "this needs sampling", Data: mustJSON(data)}
	})
	transient := func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return says("nothing"), nil }
	fixture(s, "test_trigger_tool_change", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		fixture(s, "transient_tool", transient)
		return says("changed"), nil
	})
	fixture(s, "test_trigger_prompt_change", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		promptFixture(s, "transient_prompt", nil, &sdk.TextContent{Text: "nothing"})
		return says("changed"), nil
	})
	for name, schema := range map[string]string{
		"json_schema_2020_12_tool": `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
			"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},"phone":{"type":"string"},"email":{"type":"string"}},
			"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},"then":{"required":["phone"]},"else":{"required":["email"]},"additionalProperties":false}`,
		"test_x_mcp_header": `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"level":{"type":"integer"}}}`,
	} {
		s.AddTool(&sdk.Tool{Name: name, Description: "of the conformance suite", InputSchema: json.RawMessage(schema)}, transient)
	}
}

// addAskFixtures adds the tools that ask the client during a call, as the older revisions do.
func addAskFixtures(s *sdk.Server) {
	fixture(s, "test_sampling", func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		res, err := req.Session.CreateMessage(ctx, sample(argument(req, "prompt")))
		if err != nil {
			return nil, err
		}
		text, _ := res.Content.(*sdk.TextContent)
		return says("LLM response: " + text.Text), nil
	})
	for name, properties := range map[string]string{
		"test_elicitation": `{"username":{"type":"string"},"email":{"type":"string"}}`,
		"test_elicitation_sep1034_defaults": `{"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},
			"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}}`,
		"test_elicitation_sep1330_enums": `{"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
			"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},
			"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
			"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},
			"titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}}`,
	} {
		fixture(s, name, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			res, err := req.Session.Elicit(ctx, elicit(properties))
			if err != nil {
				return nil, err
			}
			return says(fmt.Sprintf("Elicitation completed: action=%s, content=%s", res.Action, mustJSON(res.Content))), nil
		})
	}
}

func argument(req *sdk.CallToolRequest, name string) string {
	var args map[string]any
	json.Unmarshal(req.Params.Arguments, &args)
	text, _ := args[name].(string)
	return text
}

func sample(text string) *sdk.CreateMessageParams {
	return &sdk.CreateMessageParams{MaxTokens: 100, Messages: []*sdk.SamplingMessage{{Role: "user", Content: &sdk.TextContent{Text: text}}}}
}

func elicit(properties string) *sdk.ElicitParams {
	return &sdk.ElicitParams{Message: "Please answer", RequestedSchema: map[string]any{"type": "object", "properties": json.RawMessage(properties)}}
}

// accepted returns the person's answer for a key.
func accepted(answers sdk.InputResponseMap, key string) map[string]any {
	if e, ok := answers[key].(*sdk.ElicitResult); ok && e != nil && e.Action == "accept" {
		return e.Content
	}
	return nil
}

var errState = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the requestState is not one of this server"}

// addInputFixtures adds the tools that answer with a question, as the modern revision does. Their state is neither
// secret nor signed: the code checks only that it is one of a few values.
func addInputFixtures(s *sdk.Server) {
	name := elicit(`{"name":{"type":"string"}}`)
	roots := &sdk.ListRootsParams{}
	confirm := elicit(`{"ok":{"type":"boolean"}}`)
	needs := func(state string, requests sdk.InputRequestMap) *sdk.CallToolResult {
		return &sdk.CallToolResult{InputRequests: requests, RequestState: state}
	}
	ask := func(tool string, requests sdk.InputRequestMap, state string) {
		fixture(s, "test_input_required_result_"+tool, func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			if given := req.Params.RequestState; given != "" && given != state {
				return nil, errState
			}
			for key := range requests {
				if !answered(req.Params.InputResponses, key) {
					return needs(state, requests), nil
				}
			}
			return says("state-ok: " + string(mustJSON(req.Params.InputResponses))), nil
		})
	}
	ask("elicitation", sdk.InputRequestMap{"user_name": name}, "")
	ask("sampling", sdk.InputRequestMap{"capital_question": sample("What is the capital of France?")}, "")
	ask("list_roots", sdk.InputRequestMap{"client_roots": roots}, "")
	ask("request_state", sdk.InputRequestMap{"confirm": confirm}, "request-state")
	ask("tampered_state", sdk.InputRequestMap{"confirm": confirm}, "signed-state")
	ask("multiple_inputs", sdk.InputRequestMap{"user_name": name, "greeting": sample("Greet"), "client_roots": roots}, "multiple-inputs")

	fixture(s, "test_input_required_result_multi_round", func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		switch {
		case req.Params.RequestState == "":
			return needs("round-1", sdk.InputRequestMap{"step1": name}), nil
		case req.Params.RequestState == "round-1":
			return needs("round-2", sdk.InputRequestMap{"step2": elicit(`{"color":{"type":"string"}}`)}), nil
		}
		return says("both rounds are done"), nil
	})
	fixture(s, "test_input_required_result_capabilities", func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		requests, caps := sdk.InputRequestMap{}, req.ClientCapabilities()
		if caps != nil && caps.Elicitation != nil {
			requests["user_name"] = name
		}
		if caps != nil && caps.Sampling != nil {
			requests["greeting"] = sample("Greet")
		}
		if len(req.Params.InputResponses) > 0 || len(requests) == 0 {
			return says("nothing more is needed"), nil
		}
		return needs("", requests), nil
	})
}

func answered(answers sdk.InputResponseMap, key string) bool {
	if _, ok := answers[key].(*sdk.ElicitResult); ok {
		return len(accepted(answers, key)) > 0
	}
	return answers[key] != nil
}

func addResourceFixtures(s *sdk.Server) {
	read := func(c sdk.ResourceContents) sdk.ResourceHandler {
		return func(_ context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			c := c
			c.URI = req.Params.URI
			id, _, _ := strings.Cut(strings.TrimPrefix(c.URI, "test://template/"), "/")
			c.Text = strings.ReplaceAll(c.Text, "ID", id)
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{&c}}, nil
		}
	}
	s.AddResource(&sdk.Resource{Name: "static-text", URI: "test://static-text", MIMEType: "text/plain"},
		read(sdk.ResourceContents{MIMEType: "text/plain", Text: "This is the content of the static text resource."}))
	s.AddResource(&sdk.Resource{Name: "static-binary", URI: "test://static-binary", MIMEType: "image/png"},
		read(sdk.ResourceContents{MIMEType: "image/png", Blob: pixel}))
	s.AddResource(&sdk.Resource{Name: "watched", URI: "test://watched-resource", MIMEType: "text/plain"},
		read(sdk.ResourceContents{MIMEType: "text/plain", Text: "watched"}))
	s.AddResourceTemplate(&sdk.ResourceTemplate{Name: "template", URITemplate: "test://template/{id}/data", MIMEType: "application/json"},
		read(sdk.ResourceContents{MIMEType: "application/json", Text: `{"id":"ID","templateTest":true,"data":"Data for ID: ID"}`}))
}

// promptFixture adds a prompt whose text can contain its arguments.
func promptFixture(s *sdk.Server, name string, arguments []string, content ...sdk.Content) {
	p := &sdk.Prompt{Name: name, Description: "of the conformance suite"}
	for _, a := range arguments {
		p.Arguments = append(p.Arguments, &sdk.PromptArgument{Name: a, Description: "an argument", Required: true})
	}
	s.AddPrompt(p, func(_ context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		res := &sdk.GetPromptResult{}
		for _, c := range content {
			if t, ok := c.(*sdk.TextContent); ok && len(arguments) > 0 {
				c = &sdk.TextContent{Text: t.Text + string(mustJSON(req.Params.Arguments))}
			}
			if _, ok := c.(*sdk.EmbeddedResource); ok {
				c = embedded(req.Params.Arguments[arguments[0]])
			}
			res.Messages = append(res.Messages, &sdk.PromptMessage{Role: "user", Content: c})
		}
		return res, nil
	})
}

func addPromptFixtures(s *sdk.Server) {
	text := &sdk.TextContent{Text: "This is a simple prompt for testing."}
	promptFixture(s, "test_simple_prompt", nil, text)
	promptFixture(s, "test_prompt_with_arguments", []string{"arg1", "arg2"}, text)
	promptFixture(s, "test_prompt_with_embedded_resource", []string{"resourceUri"}, embedded(""), text)
	promptFixture(s, "test_prompt_with_image", nil, &sdk.ImageContent{Data: pixel, MIMEType: "image/png"}, text)
	s.AddPrompt(&sdk.Prompt{Name: "test_input_required_result_prompt", Description: "of the conformance suite"}, func(_ context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		if given := accepted(req.Params.InputResponses, "user_context"); given != nil {
			return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{{Role: "user", Content: &sdk.TextContent{Text: fmt.Sprint("Context: ", given["context"])}}}}, nil
		}
		return &sdk.GetPromptResult{InputRequests: sdk.InputRequestMap{"user_context": elicit(`{"context":{"type":"string"}}`)}}, nil
	})
}
