//go:build kubernetes

package kubernetes

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"hutch"
	"hutch/client"
	"hutch/internal/hutchtest"
)

const (
	sandboxServer = "http://127.0.0.1:7700"
	sandboxToken  = "agent-sandbox-test-token-0123456789abcdef"
)

// This file's name is after nodes_test.go: tests run in the order of their files, and TestCluster truncates REPORT.md.

// TestAgentSandbox: the client k8s-agent-sandbox, unchanged, gets its sandboxes from Hutch, through a real API server and with the
// roles of the manifests, while controllers and the server are killed.
func TestAgentSandbox(t *testing.T) {
	python := agentSandboxClient(t)
	if !inside(t) {
		return
	}
	var r report
	a := newAgentSandbox(t, python)
	a.startServer()
	a.objects()
	first := a.startController("127.0.0.1:8081")
	for _, step := range []string{"everything", "strangers", "asynchronously", "keep"} {
		r.lines = append(r.lines, a.step("8081", step)...)
	}

	a.startController("127.0.0.1:8082")
	first.Process.Kill()
	first.Wait()
	begin := time.Now()
	a.step("8082", "find")
	r.add(t, "a second controller takes over from one that was killed, and the next claim is met", time.Since(begin).Round(100*time.Millisecond).String())

	a.server.Process.Kill()
	a.server.Wait()
	a.call("DELETE", claims("team-a")+"/kept", nil)
	time.Sleep(2 * time.Second)
	if a.find("/apis/agents.x-k8s.io/v1beta1/namespaces/team-a/sandboxes", "kept") == "" {
		t.Error("the object of a deleted claim went before its sandbox, while the server was away")
	}
	a.startServer()
	a.eventually("the deleted claim's sandbox is gone", func() bool {
		return a.find("/apis/agents.x-k8s.io/v1beta1/namespaces/team-a/sandboxes", "kept") == ""
	})
	r.add(t, "a claim that was deleted while the server was away", "its sandbox is destroyed when the server is back")

	a.call("DELETE", "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/team-a/sandboxwarmpools/python", nil)
	svc := client.New(sandboxServer, sandboxToken)
	defer svc.Close()
	a.eventually("all sandboxes of the pool are destroyed", func() bool {
		list, err := svc.Sandboxes(t.Context(), hutch.Filter{Brief: true, Labels: map[string]string{"kubernetes/namespace": "team-a"}})
		return err == nil && len(list) == 0
	})
	r.add(t, "all claims and pools deleted", "the server has no sandbox of theirs")
	r.append(t)
}

// agentSandboxClient installs the client while there is still a network, and returns its interpreter.
func agentSandboxClient(t *testing.T) string {
	t.Helper()
	lock := "requirements-agent-sandbox.txt"
	dir, err := filepath.Abs(fmt.Sprintf("../../bin/agent-sandbox-%.12x", sha256.Sum256(read(t, lock))))
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(dir, "bin/python")
	if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil || os.Getenv("HUTCH_INSIDE") != "" {
		return python
	}
	for _, args := range [][]string{
		{"python3", "-m", "venv", "--clear", dir},
		{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", lock},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "ready"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return python
}

// agentSandbox is an API server and a Hutch server.
type agentSandbox struct {
	*cluster
	t      *testing.T
	python string
	admin  *http.Client
	server *exec.Cmd
}

func newAgentSandbox(t *testing.T, python string) *agentSandbox {
	a := &agentSandbox{newAPI(t), t, python, nil, nil}
	t.Cleanup(func() {
		if t.Failed() {
			for _, name := range []string{"hutch", "controller-127.0.0.1:8081", "controller-127.0.0.1:8082", "kube-apiserver"} {
				out, _ := exec.Command("tail", "-n", "25", a.path("logs/"+name)).CombinedOutput()
				t.Logf("%s:\n%s", name, out)
			}
		}
	})
	pair, err := tls.LoadX509KeyPair(a.path("pki/admin.crt"), a.path("pki/admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(read(t, a.path("pki/ca.crt")))
	a.admin = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool}}}
	a.eventually("the API answers", func() bool {
		resp, err := a.admin.Get("https://127.0.0.1:6443/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	return a
}

// call sends a request as the administrator of the cluster.
func (a *agentSandbox) call(method, path string, body any) values {
	a.t.Helper()
	status, v := a.try(method, path, body)
	if status > 299 {
		a.t.Fatalf("%s %s: %d %v", method, path, status, v)
	}
	return v
}

func (a *agentSandbox) try(method, path string, body any) (int, values) {
	a.t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		a.t.Fatal(err)
	}
	req, err := http.NewRequest(method, "https://127.0.0.1:6443"+path, bytes.NewReader(b))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	resp, err := a.admin.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	var v values
	json.Unmarshal(text, &v)
	return resp.StatusCode, v
}

// paths has the API's paths of the kinds that this test applies.
var paths = map[string]string{
	"Namespace": "/api/v1/namespaces", "ServiceAccount": "/api/v1/namespaces/%s/serviceaccounts", "Service": "/api/v1/namespaces/%s/services",
	"CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
	"ClusterRole":              "/apis/rbac.authorization.k8s.io/v1/clusterroles", "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	"Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/roles", "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/rolebindings",
	"Deployment": "/apis/apps/v1/namespaces/%s/deployments", "PodDisruptionBudget": "/apis/policy/v1/namespaces/%s/poddisruptionbudgets",
	"Sandbox":         "/apis/agents.x-k8s.io/v1beta1/namespaces/%s/sandboxes",
	"SandboxTemplate": "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/%s/sandboxtemplates", "SandboxWarmPool": "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/%s/sandboxwarmpools",
}

// applyAll applies each object of a manifest. A field that the API does not know is an error.
func (a *agentSandbox) applyAll(manifest string) {
	a.t.Helper()
	for _, doc := range documents(a.t, manifest) {
		meta := doc["metadata"].(values)
		path := paths[fmt.Sprint(doc["kind"])]
		if path == "" {
			a.t.Fatalf("where is a %v?", doc["kind"])
		}
		if strings.Contains(path, "%s") {
			path = fmt.Sprintf(path, meta["namespace"])
		}
		path += fmt.Sprintf("/%v?fieldManager=test&force=true&fieldValidation=Strict", meta["name"])
		for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
			status, v := a.try("PATCH", path, doc)
			if status < 300 {
				break
			}
			// A resource exists some time after its definition, and a server that has just started asks for another try.
			again := status == http.StatusNotFound || status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
			if !again || time.Now().After(end) {
				a.t.Fatalf("apply %s: %d %v", path, status, v)
			}
		}
	}
}

// objects applies the manifests, and makes two teams, with a user each.
func (a *agentSandbox) objects() {
	a.t.Helper()
	a.applyAll(string(read(a.t, folder+"/agent-sandbox/crds.yaml")))
	a.applyAll(string(read(a.t, folder+"/agent-sandbox/controller.yaml")))
	for _, team := range []string{"team-a", "team-b"} {
		a.applyAll(strings.ReplaceAll(`
{apiVersion: v1, kind: Namespace, metadata: {name: TEAM}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: user, namespace: TEAM}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: user, namespace: TEAM}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: hutch-sandbox-user}
subjects: [{kind: ServiceAccount, name: user, namespace: TEAM}]
---
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxTemplate
metadata: {name: python, namespace: TEAM}
spec:
  networkPolicy: {egress: []}
  podTemplate: {spec: {containers: [{name: python, ports: [{containerPort: 8888}], env: [{name: FROM_TEMPLATE, value: "yes"}], readinessProbe: {httpGet: {path: /, port: 8888}}}]}}
---
{apiVersion: extensions.agents.x-k8s.io/v1beta1, kind: SandboxWarmPool, metadata: {name: python, namespace: TEAM}, spec: {replicas: 2, sandboxTemplateRef: {name: python}}}
---
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxTemplate
metadata: {name: open, namespace: TEAM}
spec:
  networkPolicy: {egress: []}
  envVarsInjectionPolicy: Allowed
  podTemplate: {spec: {containers: [{name: python, env: [{name: FROM_TEMPLATE, value: "yes"}]}]}}
---
{apiVersion: extensions.agents.x-k8s.io/v1beta1, kind: SandboxWarmPool, metadata: {name: open, namespace: TEAM}, spec: {replicas: 0, sandboxTemplateRef: {name: open}}}
---
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxTemplate
metadata: {name: unmapped, namespace: TEAM}
spec:
  networkPolicy: {egress: []}
  podTemplate: {spec: {containers: [{name: python, volumeMounts: [{name: v, mountPath: /v}]}]}}
---
{apiVersion: extensions.agents.x-k8s.io/v1beta1, kind: SandboxWarmPool, metadata: {name: unmapped, namespace: TEAM}, spec: {replicas: 0, sandboxTemplateRef: {name: unmapped}}}
---
{apiVersion: extensions.agents.x-k8s.io/v1beta1, kind: SandboxWarmPool, metadata: {name: no-template, namespace: TEAM}, spec: {replicas: 1, sandboxTemplateRef: {name: none}}}
---
{apiVersion: agents.x-k8s.io/v1beta1, kind: Sandbox, metadata: {name: theirs, namespace: TEAM}, spec: {podTemplate: {spec: {containers: [{name: a}]}}}}
`, "TEAM", team))
	}
	a.call("DELETE", "/apis/agents.x-k8s.io/v1beta1/namespaces/team-a/sandboxes/theirs", nil)
}

func claims(namespace string) string {
	return "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/" + namespace + "/sandboxclaims"
}

// find returns the name of the Sandbox of a claim, or of a pool.
func (a *agentSandbox) find(path, claim string) string {
	a.t.Helper()
	items, _ := a.call("GET", path, nil)["items"].([]any)
	for _, item := range items {
		meta := item.(values)["metadata"].(values)
		owners, _ := meta["ownerReferences"].([]any)
		for _, o := range owners {
			if o.(values)["name"] == claim {
				return fmt.Sprint(meta["name"])
			}
		}
	}
	return ""
}

// token returns a token of a service account.
func (a *agentSandbox) token(namespace, account string) string {
	a.t.Helper()
	v := a.call("POST", "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account+"/token", values{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": values{"expirationSeconds": 7200},
	})
	return fmt.Sprint(v["status"].(values)["token"])
}

// kubeconfig writes the configuration of a service account, and returns its file.
func (a *agentSandbox) kubeconfig(namespace, account string) string {
	a.t.Helper()
	name := namespace + "-" + account + ".conf"
	b, err := yaml.Marshal(values{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{values{"name": "c", "cluster": values{"server": "https://127.0.0.1:6443", "certificate-authority": a.path("pki/ca.crt")}}},
		"users":    []any{values{"name": "u", "user": values{"token": a.token(namespace, account)}}},
		"contexts": []any{values{"name": "c", "context": values{"cluster": "c", "user": "u"}}},
	})
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name, string(b))
	return a.path(name)
}

// program starts one of Hutch's commands, and waits until its address answers.
func (a *agentSandbox) program(log, url string, env []string, args ...string) *exec.Cmd {
	a.t.Helper()
	f, err := os.OpenFile(a.path("logs/"+log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		a.t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(hutchtest.Program(a.t, "hutch"), args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), f, f
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.eventually(log+" answers", func() bool {
		resp, err := http.Get(url)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	return cmd
}

func (a *agentSandbox) startServer() {
	a.t.Helper()
	// All sandboxes of the cluster, and all requests to them, count against the one token.
	env := []string{"SANDBOX_AUTH_TOKEN=" + sandboxToken, "HUTCH_REQUESTS_PER_MINUTE=-1", "HUTCH_OPERATIONS_PER_HOUR=-1", "HUTCH_SANDBOXES_PER_TOKEN=-1"}
	a.server = a.program("hutch", sandboxServer+"/ready", env, "serve", "--listen", "127.0.0.1:7700", "--quiet", "--data", a.path("data"))
}

// startController starts a controller as the service account of the manifests.
func (a *agentSandbox) startController(listen string) *exec.Cmd {
	a.t.Helper()
	return a.program("controller-"+listen, "http://"+listen+"/healthz", []string{"HUTCH_URL=" + sandboxServer, "HUTCH_TOKEN=" + sandboxToken},
		"controller", "--kubeconfig", a.kubeconfig("agent-sandbox-system", "hutch-controller"), "--listen", listen)
}

// step runs a part of the client's program, as the user of team-a, and returns what it reports.
func (a *agentSandbox) step(port, name string) (lines []string) {
	a.t.Helper()
	cmd := exec.Command(a.python, "agentsandbox_client.py", name)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+a.kubeconfig("team-a", "user"), "ROUTER=http://127.0.0.1:"+port,
		"ROUTER_TOKEN="+a.token("team-a", "user"), "STRANGER_TOKEN="+a.token("team-b", "user"), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	a.t.Logf("%s:\n%s", name, out)
	if err != nil {
		a.t.Fatalf("%s: %v", name, err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "| ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}
