package install_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"hutch/internal/hutchtest"
)

const (
	local  = "docker compose -f deploy/compose.yaml "
	public = "PUBLIC_BASE_URL=https://code.example.com docker compose -f deploy/compose.yaml -f deploy/compose.tunnel.yaml "
)

// composes tests the compose files: the server of conversations on this machine, and then behind a tunnel, with the same volume.
func (e *engine) composes(t *testing.T) {
	if err := exec.Command(e.program, "compose", "version").Run(); err != nil {
		hutchtest.Skip(t, "docker compose is missing: %v", err)
	}
	for _, missing := range []string{"MCP_API_TOKEN", "FILE_SECRET"} {
		if out := e.docker(t, "unset "+missing+"; ! "+local+"config -q"); !strings.Contains(out, missing+" is missing a value: set it to ") {
			t.Errorf("without %s: %s", missing, out)
		}
	}
	e.docker(t, local+"up --build -d --wait")
	const url = "http://127.0.0.1:8080"
	made := e.runCode(t, url, "echo kept > note; id -u")
	if made.Stdout != "1000\n" || made.ExitCode != 0 || len(made.Files) != 1 || !strings.HasPrefix(made.Files[0].URL, "http://localhost:8080/files/") {
		t.Fatalf("the first run: %+v", made)
	}
	if file := e.get(t, strings.Replace(made.Files[0].URL, "localhost", "127.0.0.1", 1), ""); file != "kept\n" {
		t.Errorf("the file has %q", file)
	}
	e.checkContainer(t, `{{.HostConfig.Privileged}} {{.HostConfig.CgroupnsMode}} {{.HostConfig.RestartPolicy.Name}} {{.Config.StopTimeout}} {{.State.Health.Status}} {{(index .Mounts 0).Name}} {{(index .Mounts 0).Destination}}`,
		"true private unless-stopped 20 healthy hutch_data /var/lib/hutch")
	e.checkContainer(t, `{{json .HostConfig.PortBindings}}`, `{"8080/tcp":[{"HostIp":"127.0.0.1","HostPort":"8080"}]}`)
	e.docker(t, local+"restart")
	e.get(t, url+"/health", "")
	if res := e.runCode(t, url, "cat note"); res.Stdout != "kept\n" {
		t.Errorf("after a restart: %+v", res)
	}
	e.docker(t, local+"down")

	e.docker(t, public+"up --build -d --wait")
	e.checkContainer(t, `{{json .HostConfig.PortBindings}}`, `{}`)
	at := e.docker(t, "docker inspect -f '{{.NetworkSettings.Networks.hutch_default.IPAddress}}' hutch-conversation-1")
	if res := e.runCode(t, "http://"+at+":8080", "cat note"); res.Stdout != "kept\n" {
		t.Errorf("behind the tunnel: %+v", res)
	}
	if res := e.runCode(t, "http://"+at+":8080", "touch more"); len(res.Files) != 1 || !strings.HasPrefix(res.Files[0].URL, "https://code.example.com/files/") {
		t.Errorf("the link for the public: %+v", res)
	}
	var given struct {
		Args                                            []string
		Token                                           string
		Capabilities, NoNewPrivileges, ReadOnly, Health int
	}
	if out := e.docker(t, "for i in $(seq 100); do docker logs hutch-tunnel-1 | grep . && break; sleep 0.1; done"); json.Unmarshal([]byte(out), &given) != nil || strings.Join(given.Args, " ") != "tunnel --no-autoupdate run" ||
		given.Token != token || given.Capabilities != 0 || given.NoNewPrivileges != 1 || given.ReadOnly != 1 || given.Health != http.StatusOK {
		t.Errorf("the tunnel: %s", out)
	}
	e.docker(t, public+"down --volumes")
	if left := e.docker(t, "docker network ls -q -f name=hutch"); left != "" {
		t.Errorf("networks are left: %s", left)
	}
}

// checkContainer checks what the engine says about the server's container.
func (e *engine) checkContainer(t *testing.T, format, want string) {
	t.Helper()
	if have := e.docker(t, "docker inspect -f '"+format+"' hutch-conversation-1"); have != want {
		t.Errorf("the container has %s, not %s", have, want)
	}
}

// result is the answer of sandbox.run_code.
type result struct {
	Stdout, Stderr string
	ExitCode       int
	Files          []struct{ Name, URL string }
}

// runCode runs a program of bash in a conversation.
func (e *engine) runCode(t *testing.T, url, code string) (res result) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": "sandbox.run_code", "arguments": map[string]any{"conversationId": "chat", "language": "bash", "code": code}}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", url+"/mcp", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}
	resp, err := (&http.Client{Transport: &http.Transport{DialContext: e.Dial, DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	answer := struct {
		Result struct{ StructuredContent *result }
	}{}
	answer.Result.StructuredContent = &res
	if err != nil || json.Unmarshal(text, &answer) != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v %s", code, err, text)
	}
	return res
}
