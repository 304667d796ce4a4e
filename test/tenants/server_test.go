// Package tenants lets one tenant attack another: ada has a sandbox, eve has a token, and nothing that eve can send
// shows or gives her anything of ada's.
package tenants

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"hutch"
	"hutch/internal/ask"
	"hutch/internal/audit"
	"hutch/internal/auth"
	"hutch/internal/backup"
	"hutch/internal/caller"
	"hutch/internal/coding"
	"hutch/internal/compat/bridge"
	"hutch/internal/compat/dify"
	"hutch/internal/compat/e2b"
	"hutch/internal/compat/e2b/seam"
	"hutch/internal/compat/execute"
	"hutch/internal/compat/judge0"
	"hutch/internal/compat/jupyter"
	"hutch/internal/compat/librechat"
	"hutch/internal/compat/openterminal"
	"hutch/internal/compat/piston"
	"hutch/internal/compat/ragflow"
	"hutch/internal/compat/swerex"
	"hutch/internal/conversation"
	"hutch/internal/driver"
	"hutch/internal/driver/fake"
	"hutch/internal/engine"
	"hutch/internal/guard"
	"hutch/internal/history"
	"hutch/internal/hutchtest"
	"hutch/internal/image"
	"hutch/internal/images"
	"hutch/internal/mcp"
	"hutch/internal/objects"
	"hutch/internal/oci"
	"hutch/internal/owners"
	"hutch/internal/policy"
	"hutch/internal/problem"
	"hutch/internal/quota"
	"hutch/internal/rest"
	"hutch/internal/secret"
	"hutch/internal/sshkeys"
	"hutch/internal/timeline"
	"hutch/internal/volume"
	"hutch/internal/watchlink"
)

// testServer is a server with everything in front of its engine.
type testServer struct {
	*httptest.Server
	tokens       *auth.Registry
	policy       *policy.Policy
	rest         *rest.Handler
	e2b          *e2b.Server
	bridge       *bridge.Handler
	swerex       *swerex.Handler
	piston       *piston.Handler
	dify         *dify.Handler
	ragflow      *ragflow.Handler
	judge0       *judge0.Handler
	jupyter      *jupyter.Handler
	librechat    *librechat.Handler
	openterminal *openterminal.Handler
}

// local is the token that a server has without set-up.
const local = "root-of-the-server"

// open opens a server whose sandboxes are of the fake runtime.
func open(t *testing.T) *testServer {
	t.Helper()
	return openWith(t, func(vault *secret.Vault, volumes *volume.Store) *engine.Engine {
		e := engine.New(engine.Options{
			Volumes: volumes, Dir: t.TempDir(), Drivers: []driver.Driver{fake.New(t.TempDir())}, Ephemeral: true, Sealer: hutchtest.Sealer(t), Secret: vault.Value,
			PreviewURL: func(label string) string { return "http://" + label + ".localhost" },
			Image:      func(context.Context, string) (image.Root, error) { return image.Root{}, nil },
		})
		must(t, e.Start(t.Context()))
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			if err := e.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		return e
	})
}

// followUse begins to record what the sandboxes of e use.
func followUse(t *testing.T, e *engine.Engine) hutch.Histories {
	past := history.New(history.Options{Accounts: e, Sandbox: e.Sandbox, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { past.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	return past
}

func openWith(t *testing.T, build func(*secret.Vault, *volume.Store) *engine.Engine) *testServer {
	t.Helper()
	dir := t.TempDir()
	key, err := secret.LoadKey(filepath.Join(dir, "key"), filepath.Join(dir, "secrets"))
	must(t, err)
	vault, err := secret.Open(filepath.Join(dir, "secrets"), key, nil)
	must(t, err)
	record, err := audit.Open(t.Context(), audit.Options{Dir: filepath.Join(dir, "audit")})
	must(t, err)
	times, err := timeline.Open(timeline.Options{Dir: filepath.Join(dir, "timeline"), Redact: func(owner, text string) string {
		return vault.Redactor(caller.WithOwner(t.Context(), caller.Owner{ID: owner})).String(text)
	}})
	must(t, err)
	volumes, err := volume.Open(filepath.Join(dir, "volumes"), volume.Options{})
	must(t, err)
	e := build(vault, volumes)
	tokens, err := auth.Open(t.Context(), auth.Options{Local: local, LocalFree: true})
	must(t, err)
	requests, err := quota.Open(t.Context(), quota.Options{Window: time.Minute, What: "requests of a minute", Limit: "requestsPerMinute"})
	must(t, err)
	kept, err := objects.OpenFolder(filepath.Join(dir, "backups"))
	must(t, err)
	store, err := oci.Open(filepath.Join(dir, "oci"), oci.Options{})
	must(t, err)
	t.Cleanup(func() { store.Close() })
	all := images.New(images.Options{
		Store: store, Sandbox: e.Sandbox, Written: e.PackWritten,
		Began: func(context.Context) ([]string, error) { return nil, nil },
	})
	veil := secret.Redact(e, vault.Redactor)
	folders := volume.NewService(volume.ServiceOptions{Store: volumes, Uses: e.VolumeUses, Save: e.SaveVolumes})
	backups := backup.New(backup.Options{Service: veil, Store: kept})
	authority, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	must(t, err)
	keys, err := sshkeys.Open(t.Context(), sshkeys.Options{Holder: tokens.Holder, Authority: authority})
	must(t, err)
	asks := ask.New(ask.Options{Service: veil})
	t.Cleanup(asks.Close)
	p, err := policy.New(t.Context(), veil, policy.Options{
		Questions: asks,
		Tokens:    tokens, Secrets: vault, Backups: backups, Images: all, Volumes: folders, Accounts: e, Owners: owners.New(owners.Options{
			Service: e, Tokens: tokens, Volumes: folders, Images: all, Backups: backups, Secrets: vault, Keys: keys.DeleteKeys, More: func() []string { return append(volumes.Owners(), vault.Owners()...) },
		}), SSH: keys, Pools: e, Audit: record, Observer: record, Timelines: times, Record: times.Around, Histories: followUse(t, e),
	})
	must(t, err)
	talks, err := conversation.New(p, conversation.Options{Folder: filepath.Join(dir, "conversations"), Secret: []byte("signs links")})
	must(t, err)
	links, err := watchlink.Open(t.Context(), watchlink.Options{Processes: p, Holder: tokens.Holder})
	must(t, err)
	h := &testServer{tokens: tokens, policy: p, rest: rest.NewHandler(p, rest.Options{Tokens: p, Sharing: p, Secrets: p, Backups: p, Images: p, Volumes: p, Accounts: p, Owners: p, SSH: p, Pools: p, Audit: p, Timelines: p, Histories: p, Links: links})}
	tools := mcp.NewHandler(p, mcp.Options{Conversations: talks})
	mux := http.NewServeMux()
	mux.Handle("/mcp", tools)
	mux.Handle("/v1/", h.rest)
	agents := coding.NewHandler(p)
	mux.Handle(coding.Prefix, agents)
	mux.Handle(coding.Prefix+"/", agents)
	talks.Routes(mux)
	h.e2b = e2b.New(e2b.Options{
		Service: p, Images: p, Accounts: p, Records: e.Sandboxes, Principal: tokens.Holder, Uploads: t.TempDir(), Secret: []byte("makes the keys of sandboxes"),
		Services: seam.Handlers{Envd: shows, Interpreter: shows},
	})
	h.bridge = bridge.NewHandler(p, bridge.Options{Volumes: p, Pools: p})
	for _, path := range bridge.Paths {
		mux.Handle(path, h.bridge)
	}
	h.swerex, h.piston = swerex.NewHandler(p, swerex.Options{}), piston.NewHandler(p, piston.Options{})
	mux.Handle("/swerex/", h.swerex)
	mux.Handle("/piston/", h.piston)
	h.dify = dify.NewHandler(p, dify.Options{})
	mux.Handle("/dify/", h.dify)
	h.ragflow = ragflow.NewHandler(p, ragflow.Options{})
	mux.Handle("/ragflow/", h.ragflow)
	h.judge0 = judge0.NewHandler(p, judge0.Options{Accounts: p})
	mux.Handle("/judge0/", h.judge0)
	questions := execute.NewHandler(p, execute.Options{})
	t.Cleanup(questions.Close)
	mux.Handle(execute.Path, questions)
	h.jupyter = jupyter.NewHandler(p, jupyter.Options{})
	t.Cleanup(h.jupyter.Close)
	mux.Handle("/jupyter/", h.jupyter)
	h.librechat = librechat.NewHandler(p, librechat.Options{})
	mux.Handle("/librechat/v1/", h.librechat)
	h.openterminal = openterminal.NewHandler(p, openterminal.Options{})
	mux.Handle("/openterminal/", h.openterminal)
	mux.Handle(e2b.Prefix, http.StripPrefix("/e2b", h.e2b))
	isOpen := func(r *http.Request) bool { return conversation.Open(r) || e2b.Open(r) }
	guarded := guard.New(h.e2b.Inside(mux), guard.Options{Check: tokens.Check, Known: e2b.Known, Requests: requests, Open: isOpen, Refuse: func(w http.ResponseWriter, r *http.Request, err error) {
		if r.URL.Path == "/mcp" {
			mcp.Refuse(w, r, err)
			return
		}
		problem.Write(w, err)
	}})
	h.Server = httptest.NewServer(h.e2b.Front(guarded, guarded))
	t.Cleanup(func() {
		h.rest.Close()
		h.bridge.Close()
		h.swerex.Close()
		h.piston.Close()
		h.dify.Close()
		h.ragflow.Close()
		h.judge0.Close()
		h.librechat.Close()
		h.openterminal.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		tools.Close(ctx)
		talks.Close()
		h.Server.Close()
		if err := record.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// shows is a service of a sandbox that shows a file in it.
var shows = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	at := seam.From(r.Context())
	if _, err := at.Service.ReadFile(r.Context(), at.Sandbox, hutch.ReadRequest{Path: "secret"}, w); err != nil {
		problem.Write(w, err)
	}
})

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tenant is an owner with a token.
type tenant struct {
	*testServer
	hutch.MintedToken
}

func (h *testServer) tenant(t testing.TB, req hutch.TokenRequest) *tenant {
	t.Helper()
	if req.Limits.Requests == 0 {
		req.Limits.Requests = hutch.Unlimited
	}
	minted, err := h.tokens.CreateToken(t.Context(), req)
	must(t, err)
	return &tenant{h, minted}
}

// adaAndEve returns two unrelated tenants.
func (h *testServer) adaAndEve(t testing.TB) (ada, eve *tenant) {
	t.Helper()
	return h.tenant(t, hutch.TokenRequest{Name: "ada"}), h.tenant(t, hutch.TokenRequest{Name: "eve"})
}

// root returns the tenant that a server has without set-up.
func (h *testServer) root() *tenant { return &tenant{h, hutch.MintedToken{Secret: local}} }

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask makes a request with the tenant's token, unless the headers have another.
func (who *tenant) ask(t testing.TB, method, path, body string, header ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, who.URL+path, bytes.NewReader([]byte(body)))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+who.Secret)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := who.Client().Do(req)
	must(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// want makes a request that must succeed.
func (who *tenant) want(t testing.TB, method, path, body string) (v map[string]any) {
	t.Helper()
	a := who.ask(t, method, path, body)
	if a.status >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
	}
	json.Unmarshal([]byte(a.body), &v) // a nil map if the answer is not an object
	return v
}

// call calls a tool in the modern revision, which has no sessions.
func (who *tenant) call(t testing.TB, tool string, args map[string]any) answer {
	t.Helper()
	return who.ask(t, "POST", "/mcp", message(t, map[string]any{"name": tool, "arguments": args, "_meta": map[string]any{
		"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": map[string]any{},
	}}), "Content-Type", "application/json", "Accept", "application/json, text/event-stream",
		"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool)
}

// message returns a call of a tool in JSON-RPC.
func message(t testing.TB, params map[string]any) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
	must(t, err)
	return string(b)
}
