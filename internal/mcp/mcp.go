// Package mcp offers a [hutch.Service] to MCP clients: a dozen tools, over
// streamable HTTP and over stdio.
//
// One address serves two eras of the protocol. Revisions up to 2025-11-25 have
// sessions, cancel by notification and expect tool failures as JSON-RPC errors.
// Revision 2026-07-28 has no sessions, cancels by hanging up, and expects
// failures as results marked isError. A request's MCP-Protocol-Version header
// gives its era. Both eras use the same tools, and one table (failure.go) renders
// failures for either.
//
// State belongs to explicit sandbox ids and never to a session. For a session, the server only remembers which
// sandboxes were created for it, and destroys them when the session ends.
//
// Only this package imports the MCP SDK. Package guard, in front of it, decides
// who can call, and from which host and origin.
package mcp

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/coding"
)

// Options configure a server. The zero value works.
type Options struct {
	Version string // version of Hutch, sent to clients
	Log     *slog.Logger
	// SessionTimeout ends a session (revisions up to 2025-11-25, over HTTP) with its sandboxes after this time
	// without a call; default 5 minutes.
	SessionTimeout time.Duration
	// MaxBody is the longest accepted message in bytes; default 32 MiB.
	MaxBody int64
	// KeepAlive is how long a streaming answer can be silent before a comment is sent, so that proxies do not cut it;
	// default 15 seconds.
	KeepAlive time.Duration
	// Conversations, when set, adds the tools of conversations.
	Conversations Conversations
	// Agents, when set, adds the tool of coding agents. The tool uses verbs of this service.
	Agents coding.Service
	// OnlyConversations leaves out all tools except those of conversations.
	OnlyConversations bool
}

func (o Options) withDefaults() Options {
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.SessionTimeout <= 0 {
		o.SessionTimeout = 5 * time.Minute
	}
	if o.MaxBody <= 0 {
		o.MaxBody = 32 << 20
	}
	if o.KeepAlive <= 0 {
		o.KeepAlive = 15 * time.Second
	}
	return o
}

// modern is the first revision without sessions.
const modern = "2026-07-28"

const instructions = `Hutch runs commands and code in isolated Linux sandboxes.
Call exec to run something: without sandboxId it makes a fresh sandbox and returns its id; pass that id to continue in the same one. Files under /workspace last as long as the sandbox.
A sandbox made by exec goes away when the session ends, or after 5 minutes without use. Clean-up is not your job, but destroySandbox frees one at once.
Each exec is a new shell: cwd and variables do not carry over, files do. A command is killed at its timeout (30 s unless given); use startBackgroundProcess for servers and long work.
Output over about 20,000 characters comes back as its beginning and end. Inside there is no network but what rules allow: a result says what was denied, and the tool network can allow it.`

// server is the part that all transports share: the tools, bound to a Service.
type server struct {
	svc      hutch.Service
	opt      Options
	sdk      *sdk.Server
	tools    map[string]sdk.ToolHandler // the tools of this server
	names    []string                   // of all tools, sorted
	meta     map[string]any             // attached to every result of the modern era
	sessions *sessions
	// single says that there is only one connection, which counts as one session in either era.
	single  bool
	answers answers
}

// fixtures is set only in a build for the conformance suite. It changes a server's options and returns a function
// that registers the suite's tools.
var fixtures func(*sdk.ServerOptions) func(*sdk.Server)

func newServer(svc hutch.Service, opt Options) *server {
	s := &server{svc: svc, opt: opt.withDefaults(), tools: map[string]sdk.ToolHandler{}}
	s.sessions = newSessions(svc, s.opt.Log)
	instructions := instructions
	if s.opt.OnlyConversations {
		instructions = conversationInstructions
	}
	sdkOpt := &sdk.ServerOptions{
		Instructions: instructions,
		// Capabilities must not be nil, or the SDK advertises the deprecated logging. The tools never change, so
		// clients need not listen for changes.
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
		SetCacheable: cacheable,
	}
	add := func(*sdk.Server) {}
	if fixtures != nil {
		add = fixtures(sdkOpt)
	}
	self := &sdk.Implementation{Name: "hutch", Title: "Hutch sandboxes", Version: s.opt.Version}
	s.sdk = sdk.NewServer(self, sdkOpt)
	if fixtures == nil {
		s.sdk.AddReceivingMiddleware(refuseUndeclared, s.refuseUnknownTool)
	}
	s.meta = map[string]any{sdk.MetaKeyServerInfo: self}
	add(s.sdk)
	if !s.opt.OnlyConversations {
		s.addTools()
		if s.opt.Agents != nil {
			s.addAgentTool()
		}
	}
	if s.opt.Conversations != nil {
		s.addConversationTools()
	}
	s.names = slices.Sorted(maps.Keys(s.tools))
	return s
}

// cacheable lets clients cache the list of tools for a while.
func cacheable(_ context.Context, _ sdk.Request, c *sdk.Cacheable) {
	c.TTLMs, c.CacheScope = int(5*time.Minute/time.Millisecond), "private"
}

// call is a tools/call request in progress.
type call struct {
	s       *server
	req     *sdk.CallToolRequest
	tool    string
	session *session // nil in the modern era over HTTP, which has no sessions
	// sandbox is the sandbox of the call, for error messages.
	sandbox string
	// images are sent with the answer.
	images []sdk.Content
	// state describes the state of the interpreter that ran the code.
	state string
}

func (c *call) modern() bool { return c.req.ProtocolVersion() >= modern }

// answer returns the HTTP response to which the result will go; nil over stdio.
func (c *call) answer() *answer {
	if c.req.Extra == nil {
		return nil
	}
	return c.s.answers.of(c.req.Extra.Header)
}

// keepAlive keeps the connection from looking dead while the call runs.
func (c *call) keepAlive() {
	if a := c.answer(); a != nil {
		a.keepAlive(c.s.opt.KeepAlive)
	}
}

// identify returns ctx with the caller of the request; the SDK's context has at most the caller of the request that
// began the session. The context ends when the caller's token does. If the client reconnects, the call outlives its
// request, so the call itself holds the request's memory.
func (c *call) identify(ctx context.Context) (context.Context, context.CancelFunc) {
	a := c.answer()
	if a == nil {
		return ctx, func() {}
	}
	who := caller.From(a.ctx)
	who.Origin.Surface = "mcp"
	free := who.Budget.Hold()
	ctx = caller.With(ctx, who)
	if who.Principal == nil {
		return ctx, context.CancelFunc(free)
	}
	ctx, cancel := who.Principal.Hold(ctx)
	return ctx, func() { cancel(); free() }
}

// session returns the session of a call, or nil if the call has none. ss is nil for a plain call (plain.go).
func (s *server) session(ctx context.Context, ss *sdk.ServerSession) *session {
	if ss == nil || ss.ID() == "" && !s.single {
		return nil
	}
	return s.sessions.of(ss, caller.From(ctx).Principal)
}

// close ends all sessions and calls, and waits until they are cleaned up or ctx is done.
func (s *server) close(ctx context.Context) error {
	s.sessions.cancel()
	for ss := range s.sdk.Sessions() {
		go ss.Close() // waits for its calls, which were just cancelled
	}
	return s.sessions.wait(ctx)
}
