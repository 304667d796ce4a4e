package fleet

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/crypto/ssh"

	"hutch"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/pgtest"
)

// TestEveryDoor: MCP, SSH and E2B's API lead to a sandbox through nodes that do not have it. TestAnyNode
// does the same over REST.
func TestEveryDoor(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		hutchtest.Skip(t, "the runtime native needs root here")
	}
	more := map[string][]string{}
	for _, name := range []string{"a", "b", "c"} {
		more[name] = []string{"--ssh", freeAddress(t)}
	}
	all := newFleetOn(t, pgtest.New(t), more)
	a, b, c := all[0], all[1], all[2]
	id := placeOn(t, a, "a")
	a.sh(t, id, "echo kept > /workspace/file")
	for _, n := range []*node{b, c} {
		t.Run("MCP through "+n.name, func(t *testing.T) { overMCP(t, n, id) })
		t.Run("SSH through "+n.name, func(t *testing.T) { overSSH(t, n, id) })
	}
	a.isOn(t, "a", id)
	t.Run("E2B", func(t *testing.T) { overE2B(t, a, b, c) })
}

// withToken adds the token to requests.
type withToken struct{}

func (withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return http.DefaultTransport.RoundTrip(r)
}

// overMCP uses a sandbox in a session of MCP.
func overMCP(t *testing.T, n *node, id string) {
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: n.url + "/mcp", HTTPClient: &http.Client{Transport: withToken{}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	call := func(tool string, args map[string]any) string {
		t.Helper()
		res, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(res)
		if err != nil || res.IsError {
			t.Fatalf("%s: %s %v", tool, text, err)
		}
		return string(text)
	}
	if got := call("exec", map[string]any{"sandboxId": id, "command": "cat /workspace/file"}); !strings.Contains(got, "kept") {
		t.Errorf("its file: %s", got)
	}
	call("writeFile", map[string]any{"sandboxId": id, "path": "/workspace/by-" + n.name, "content": "over MCP"})
	if got := call("readFile", map[string]any{"sandboxId": id, "path": "/workspace/by-" + n.name}); !strings.Contains(got, "over MCP") {
		t.Errorf("a file that it wrote: %s", got)
	}
}

// overSSH runs commands and opens a terminal in a sandbox.
func overSSH(t *testing.T, n *node, id string) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.AddSSHKey(t.Context(), hutch.SSHKeyRequest{Key: string(ssh.MarshalAuthorizedKey(key.PublicKey()))}); err != nil {
		t.Fatal(err)
	}
	at, err := n.SSHServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	host, _, _, _, err := ssh.ParseAuthorizedKey([]byte(at.HostKey))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ssh.Dial("tcp", at.Address, &ssh.ClientConfig{User: id, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.FixedHostKey(host), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	session, err := conn.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	session.Stdin = strings.NewReader("typed")
	if got, err := session.Output("cat /workspace/file -"); err != nil || string(got) != "kept\ntyped" {
		t.Errorf("a command: %q %v", got, err)
	}
	if session, err = conn.NewSession(); err != nil {
		t.Fatal(err)
	}
	err = session.Run("exit 7")
	if exit, ok := err.(*ssh.ExitError); !ok || exit.ExitStatus() != 7 {
		t.Errorf("an exit code: %v", err)
	}
	if session, err = conn.NewSession(); err != nil {
		t.Fatal(err)
	}
	if err := session.RequestPty("xterm", 24, 80, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := session.Output("tty | head -c 5; stty size"); err != nil || !strings.HasPrefix(string(got), "/dev/") || !strings.Contains(string(got), "24 80") {
		t.Errorf("a terminal: %q %v", got, err)
	}
	through, err := conn.Dial("tcp", "localhost:1") // where nothing listens: the sandbox answers, and not the node
	if err == nil {
		through.Close()
		t.Error("a port of the sandbox where nothing listens answers")
	}
}

// overE2B creates a sandbox through one node, so that it is on another node, and uses its services through all nodes.
func overE2B(t *testing.T, a, b, c *node) {
	a.must(t, "node", "cordon", "b")
	a.must(t, "node", "cordon", "c")
	ask := func(n *node, method, path, body string, headers ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, n.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	var made struct {
		ID     string `json:"sandboxID"`
		Access string `json:"envdAccessToken"`
	}
	status, text := ask(b, "POST", "/e2b/sandboxes", `{"templateID":"base"}`, "X-Api-Key", token)
	if err := json.Unmarshal([]byte(text), &made); err != nil || status != http.StatusCreated {
		t.Fatalf("create: %d %s %v", status, text, err)
	}
	a.isOn(t, "a", made.ID)
	a.must(t, "node", "uncordon", "b")
	a.must(t, "node", "uncordon", "c")
	inside := []string{"E2b-Sandbox-Id", made.ID, "X-Access-Token", made.Access}
	for _, n := range []*node{b, c} {
		if status, text := ask(n, "GET", "/e2b/sandboxes/"+made.ID, "", "X-Api-Key", token); status != 200 || !strings.Contains(text, made.ID) {
			t.Errorf("get through %s: %d %s", n.name, status, text)
		}
		if status, text := ask(n, "POST", "/e2b/sandboxes/"+made.ID+"/connect", `{"timeout":600}`, "X-Api-Key", token); status/100 != 2 || !strings.Contains(text, made.Access) {
			t.Errorf("connect through %s: %d %s", n.name, status, text)
		}
		if status, text := ask(n, "POST", "/process.Process/List", "{}", inside...); status != 200 {
			t.Errorf("the processes through %s: %d %s", n.name, status, text)
		}
		if status, text := ask(n, "POST", "/process.Process/List", "{}", "E2b-Sandbox-Id", made.ID, "X-Access-Token", "forged"); status != http.StatusUnauthorized {
			t.Errorf("a forged access token through %s: %d %s", n.name, status, text)
		}
		if err := a.WriteFileString(t, made.ID, "/workspace/file", "through "+n.name); err != nil {
			t.Fatal(err)
		}
		if status, text := ask(n, "GET", "/files?path=/workspace/file", "", inside...); status != 200 || text != "through "+n.name {
			t.Errorf("a file through %s: %d %s", n.name, status, text)
		}
		if got := commandOverE2B(t, n, inside, "cat /workspace/file"); !strings.Contains(got, "through "+n.name) {
			t.Errorf("a command through %s: %q", n.name, got)
		}
		if status, text := ask(n, "POST", "/execute", `{"code":"print(6*7)","language":"python"}`, append(inside, "E2b-Sandbox-Port", "49999")...); status != 200 || !strings.Contains(text, "42") {
			t.Errorf("code through %s: %d %s", n.name, status, text)
		}
	}
	if status, text := ask(c, "DELETE", "/e2b/sandboxes/"+made.ID, "", "X-Api-Key", token); status/100 != 2 {
		t.Errorf("kill: %d %s", status, text)
	}
	if _, err := a.Sandbox(t.Context(), made.ID); hutch.KindOf(err) != hutch.NotFound {
		t.Errorf("afterwards: %v", err)
	}
}

// commandOverE2B runs a command as E2B's clients do, with one message in a stream of Connect, and returns what it prints.
func commandOverE2B(t *testing.T, n *node, headers []string, command string) (out string) {
	t.Helper()
	message := fmt.Sprintf(`{"process":{"cmd":"/bin/bash","args":["-l","-c",%q]}}`, command)
	framed := append([]byte{0, 0, 0, byte(len(message) >> 8), byte(len(message))}, message...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", n.url+"/process.Process/Start", bytes.NewReader(framed))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/connect+json")
	req.Header.Set("Connect-Protocol-Version", "1")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%d %q %v", resp.StatusCode, all, err)
		return ""
	}
	for len(all) >= 5 {
		size := int(binary.BigEndian.Uint32(all[1:]))
		if size > len(all)-5 {
			t.Errorf("half a message: %q", all)
			return out
		}
		var m struct {
			Event struct {
				Data struct{ Stdout []byte }
			}
		}
		if err := json.Unmarshal(all[5:5+size], &m); err != nil {
			t.Errorf("%q: %v", all, err)
			return out
		}
		out += string(m.Event.Data.Stdout)
		all = all[5+size:]
	}
	return out
}
