package mcp

import (
	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
)

// addTools registers the tools; clients see them in the order of their names.
func (s *server) addTools() {
	add(s, &sdk.Tool{
		Name: "exec", Title: "Run a command or code",
		Description: "Run a bash command, or source code in a language, in an isolated Linux sandbox and wait for its end. " +
			"Without sandboxId a fresh sandbox is made; pass the returned sandboxId to continue in it. " +
			"Files stay (put them in /workspace); cwd and variables do not, unless you give a sessionId. " +
			"A non-zero exitCode is a result, not an error. At the timeout everything the command started is killed and what it printed is returned. " +
			"Long output comes back as its beginning and end.",
		Annotations:  hints{destructive: true, openWorld: true}.annotations(),
		InputSchema:  schema[execArgs](nil),
		OutputSchema: result[execOutput](),
	}, s.exec)
	add(s, &sdk.Tool{
		Name: "startBackgroundProcess", Title: "Start a background process",
		Description: "Start a server or another long-running command in a sandbox, and return at once. " +
			"It ends with the sandbox; a sandbox that exec made ends with the session. At most 10 run at once. waitProcess shows its status and output.",
		Annotations: hints{destructive: true, openWorld: true}.annotations(),
		InputSchema: schema[startProcessArgs](func(p properties) {
			p["restartPolicy"].Enum = oneOf(hutch.RestartAlways, hutch.RestartOnFailure, hutch.RestartNever)
		}),
		OutputSchema: result[startedProcess](),
	}, s.startBackgroundProcess)
	add(s, &sdk.Tool{
		Name: "waitProcess", Title: "Wait for a background process",
		Description: "Wait for a background process to end, to print a text or to open a port, and show what it printed. " +
			"Returns when that has come, when the process has ended, or when the timeout is up: then call it again. " +
			"It can write to stdin and send a signal first. Output is bounded; pass the returned cursor to read on.",
		Annotations: hints{destructive: true, openWorld: true}.annotations(),
		InputSchema: schema[waitProcessArgs](nil),
	}, s.waitProcess)
	add(s, &sdk.Tool{
		Name: "getSandbox", Title: "Show sandboxes",
		Description: "Show one sandbox, or list all active ones: status, uptime, CPU and memory in use, and background processes. " +
			"Looking does not wake a sandbox or keep it alive.",
		Annotations: hints{readOnly: true, idempotent: true}.annotations(),
		InputSchema: schema[getSandboxArgs](func(p properties) {
			p["filters"].Properties["status"].Enum = oneOf(hutch.Creating, hutch.Running, hutch.Paused, hutch.Hibernated, hutch.Stopped, hutch.Failed)
			for _, name := range []string{"createdAfter", "createdBefore"} {
				p["filters"].Properties[name].Format = "date-time"
			}
		}),
	}, s.getSandbox)
	add(s, &sdk.Tool{
		Name: "destroySandbox", Title: "Destroy a sandbox",
		Description: "Destroy a sandbox with its files and processes, for good. One that is already gone is no error. " +
			"With background processes running it is refused unless force is set.",
		Annotations:  hints{destructive: true, idempotent: true}.annotations(),
		InputSchema:  schema[destroySandboxArgs](nil),
		OutputSchema: result[hutch.Destruction](),
	}, s.destroySandbox)
	s.addFileTools()
	s.addScreenTool()
	add(s, &sdk.Tool{
		Name: "exposePort", Title: "Show a port",
		Description: "Give a server in a sandbox a URL that a browser can open. The server may start later. Opening the URL wakes the sandbox. The same port gives the same URL.",
		Annotations: hints{idempotent: true, openWorld: true}.annotations(),
		InputSchema: schema[exposePortArgs](func(p properties) {
			p["protocol"].Enum = oneOf(hutch.HTTPPort, hutch.HTTPSPort)
		}),
	}, s.exposePort)
	add(s, &sdk.Tool{
		Name: "network", Title: "Show or change the network",
		Description: "Show what a sandbox may reach, and what was denied; or change it. By default nothing is reachable but by rules. A change may need a token that is allowed to.",
		Annotations: hints{openWorld: true}.annotations(),
		InputSchema: schema[networkArgs](func(p properties) {
			p["mode"].Enum = oneOf(hutch.NetworkNone, hutch.NetworkAllowList, hutch.NetworkOpen)
		}),
	}, s.network)
}

type properties = map[string]*jsonschema.Schema

// result returns the schema of a structured result. In the modern era a failed call returns its error as the structured
// result, and clients check it against this schema too. Only the tools whose results programs read most have such a
// schema. Models do not need it, and they pay for every word of the list of tools.
func result[T any]() *jsonschema.Schema {
	s := schema[T](nil)
	s.AnyOf = []*jsonschema.Schema{{Required: s.Required}, {Required: []string{"error"}}}
	s.Required = nil
	s.AdditionalProperties = nil
	s.Properties["error"] = &jsonschema.Schema{Type: "object", Description: "code, message, data"}
	return s
}

// hints are a tool's annotations. All are always set, because clients use them to decide which calls need a person's
// consent.
type hints struct{ readOnly, destructive, idempotent, openWorld bool }

func (h hints) annotations() *sdk.ToolAnnotations {
	return &sdk.ToolAnnotations{
		ReadOnlyHint: h.readOnly, DestructiveHint: &h.destructive, IdempotentHint: h.idempotent, OpenWorldHint: &h.openWorld,
	}
}
