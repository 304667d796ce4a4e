package controller

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hutch/client"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/server"
)

const clientTest = "../../test/kubernetes"

// pythonClient installs the client of agent-sandbox, if it is not there, and returns its interpreter.
func pythonClient(t *testing.T) string {
	t.Helper()
	lock := filepath.Join(clientTest, "requirements-agent-sandbox.txt")
	text, err := os.ReadFile(lock)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs(fmt.Sprintf("../../bin/agent-sandbox-%.12x", sha256.Sum256(text)))
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(dir, "bin/python")
	if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
		return python
	}
	for _, args := range [][]string{
		{"python3", "-m", "venv", "--clear", dir},
		{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", lock},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			hutchtest.Skip(t, "the client of agent-sandbox cannot be installed: %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "ready"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return python
}

// The client k8s-agent-sandbox, unchanged, gets its sandboxes from a Hutch server. The API of Kubernetes is the fake of
// these tests.
func TestPythonClient(t *testing.T) {
	python := pythonClient(t)
	c := newCluster(t)
	c.reviews = func(kind string, spec object) object {
		if kind == "tokenreviews" {
			token := fmt.Sprint(spec["token"])
			return object{"authenticated": strings.HasPrefix(token, "team-"), "user": object{"username": token}}
		}
		return object{"allowed": spec["user"] == spec["resourceAttributes"].(object)["namespace"]}
	}
	for _, team := range []string{"team-a", "team-b"} {
		template := pod(object{"env": []any{object{"name": "FROM_TEMPLATE", "value": "yes"}}})
		template["networkPolicy"] = object{"egress": []any{}}
		c.do("POST", team+"/sandboxtemplates", named("python", template))
		open := clone(template)
		open["envVarsInjectionPolicy"] = "Allowed"
		c.do("POST", team+"/sandboxtemplates", named("open", open))
		unmapped := pod(object{"volumeMounts": []any{object{"name": "v"}}})
		c.do("POST", team+"/sandboxtemplates", named("unmapped", unmapped))
		c.do("POST", team+"/sandboxwarmpools", named("python", poolOf("python", 2)))
		for _, name := range []string{"open", "unmapped", "no-template"} {
			c.do("POST", team+"/sandboxwarmpools", named(name, poolOf(name, 0)))
		}
	}
	c.do("POST", "team-b/sandboxes", named("theirs", pod(object{})))

	dir := hutchtest.Dir(t)
	where := server.Program(t, dir, os.Environ())
	svc := client.New(strings.TrimPrefix(where[0], "HUTCH_URL="), strings.TrimPrefix(where[1], "HUTCH_TOKEN="))
	defer svc.Close()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "c", "cluster": {"server": "%s"}}], "users": [{"name": "u", "user": {"token": "t"}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}`, c.url), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, svc, l, Config{Kubeconfig: kubeconfig, Lease: "sys/lease", Identity: "one", Log: slog.New(slog.DiscardHandler)})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	url := "http://" + l.Addr().String()
	c.eventually("the router answers", func() bool {
		resp, err := http.Get(url + "/healthz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	for _, step := range []string{"everything", "strangers"} {
		limit, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		cmd := exec.CommandContext(limit, python, filepath.Join(clientTest, "agentsandbox_client.py"), step)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "ROUTER="+url, "ROUTER_TOKEN=team-a", "STRANGER_TOKEN=team-b", "PYTHONDONTWRITEBYTECODE=1")
		out, err := cmd.CombinedOutput()
		stop()
		t.Logf("%s:\n%s", step, out)
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
	}
}
