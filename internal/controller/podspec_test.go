package controller

import (
	"encoding/json"
	"strings"
	"testing"

	"hutch"
)

func fields(t *testing.T, text string) object {
	t.Helper()
	var o object
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return o
}

// The fields of a pod that upstream's own examples of a Python runtime have, and what they become.
func TestTranslate(t *testing.T) {
	t.Parallel()
	b := blueprint{}
	b.PodTemplate.Spec = fields(t, `{
		"runtimeClassName": "gvisor", "restartPolicy": "OnFailure", "automountServiceAccountToken": false,
		"securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 2000, "seccompProfile": {"type": "RuntimeDefault"}},
		"containers": [{
			"name": "python-runtime", "image": "registry.example.com/python:1", "imagePullPolicy": "Always",
			"ports": [{"containerPort": 8888, "name": "http", "protocol": "TCP"}],
			"readinessProbe": {"httpGet": {"path": "/", "port": 8888}, "initialDelaySeconds": 0, "periodSeconds": 1},
			"livenessProbe": {"tcpSocket": {"port": 8888}},
			"resources": {"requests": {"cpu": "250m", "memory": "512Mi", "ephemeral-storage": "512Mi"}, "limits": {"memory": "1Gi", "cpu": 2}}
		}]
	}`)
	got := translate(b)
	if err := got.err(); err != nil {
		t.Fatal(err)
	}
	req := got.create
	if req.Image != "registry.example.com/python:1" || req.Pull != hutch.PullAlways || req.Runtime != "gvisor" || req.User != "1000:2000" {
		t.Errorf("%+v", req)
	}
	if req.Limits != (hutch.Limits{CPU: 2, Memory: 1024, Disk: 512}) {
		t.Errorf("limits %+v", req.Limits)
	}
	if !got.program.entrypoint || got.program.restart != hutch.RestartOnFailure {
		t.Errorf("program %+v", got.program)
	}
	if err := req.Check(); err != nil {
		t.Error(err)
	}
}

// The securityContext of a container wins over that of its pod, field by field.
func TestSecurityContext(t *testing.T) {
	t.Parallel()
	for _, is := range []struct{ pod, container, want string }{
		{`{"runAsUser": 0}`, `{"runAsUser": 1000}`, "1000"},
		{`{"runAsUser": 1000}`, `{"runAsGroup": 2000}`, "1000:2000"},
		{`{"runAsGroup": 2000}`, `{"runAsUser": 1000}`, "1000:2000"},
		{`{"runAsUser": 1000}`, `{"runAsNonRoot": true}`, "1000"},
		{`{"runAsNonRoot": true}`, `{"runAsUser": 1000}`, "1000"},
		{`{"runAsNonRoot": true}`, `{"runAsNonRoot": false}`, ""},
		{`{"runAsNonRoot": true, "runAsUser": 1000}`, `{"runAsUser": 0}`, "podTemplate.spec.securityContext.runAsNonRoot without runAsUser"},
		{`{"runAsUser": 0}`, `{"runAsNonRoot": true}`, "containers[0].securityContext.runAsNonRoot without runAsUser"},
		{`{}`, `{"runAsGroup": 2000}`, "runAsGroup without runAsUser"},
	} {
		b := blueprint{}
		b.PodTemplate.Spec = fields(t, `{"securityContext": `+is.pod+`, "containers": [{"securityContext": `+is.container+`}]}`)
		got := translate(b)
		if err := got.err(); err != nil && !(strings.Contains(is.want, "without") && strings.Contains(err.Error(), is.want)) || err == nil && got.create.User != is.want {
			t.Errorf("pod %s, container %s: user %q, %v", is.pod, is.container, got.create.User, err)
		}
	}
}

// Each field without a counterpart is named, with its path.
func TestUnmapped(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`:                                                  "containers", // none at all
		`{"containers": [{}, {}]}`:                            "containers[1]",
		`{"volumes": [{"name": "v"}]}`:                        "podTemplate.spec.volumes",
		`{"initContainers": [{"name": "v"}]}`:                 "podTemplate.spec.initContainers",
		`{"serviceAccountName": "a"}`:                         "podTemplate.spec.serviceAccountName",
		`{"nodeSelector": {"a": "b"}}`:                        "podTemplate.spec.nodeSelector",
		`{"runtimeClassName": "kata"}`:                        "runtimeClassName: kata",
		`{"hostPID": true}`:                                   "hostPID: true",
		`{"automountServiceAccountToken": true}`:              "automountServiceAccountToken: true",
		`{"restartPolicy": "Sometimes"}`:                      "restartPolicy: Sometimes",
		`{"securityContext": {"runAsNonRoot": true}}`:         "runAsNonRoot without runAsUser",
		`{"securityContext": {"fsGroup": 1}}`:                 "securityContext.fsGroup",
		`{"containers": [{"volumeMounts": [{"name": "v"}]}]}`: "containers[0].volumeMounts",
		`{"containers": [{"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"a": "b"}}}]}]}`: "containers[0].env[0].valueFrom",
		`{"containers": [{"env": [{"name": "A", "value": "$(B)"}]}]}`:                           "containers[0].env[0].value",
		`{"containers": [{"args": ["a"]}]}`:                                                     "containers[0].args without command",
		`{"containers": [{"command": ["a", "$(B)"]}]}`:                                          "containers[0].command with a variable",
		`{"containers": [{"command": [1]}]}`:                                                    "containers[0].command",
		`{"containers": [{"workingDir": "here"}]}`:                                              "containers[0].workingDir",
		`{"containers": [{"ports": [{"hostPort": 1}]}]}`:                                        "containers[0].ports[0].hostPort",
		`{"containers": [{"securityContext": {"privileged": true}}]}`:                           "securityContext.privileged",
		`{"containers": [{"securityContext": {"capabilities": {"add": ["ALL"]}}}]}`:             "securityContext.capabilities",
		`{"containers": [{"readinessProbe": {"httpGet": {"port": 3000}}}]}`:                     "readinessProbe.httpGet.port: 3000",
		`{"containers": [{"readinessProbe": {"httpGet": {"port": 8888, "path": "/x"}}}]}`:       "readinessProbe.httpGet.path: /x",
		`{"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}`:                    "resources.limits.nvidia.com/gpu",
		`{"containers": [{"resources": {"limits": {"memory": "-1"}}}]}`:                         "resources.limits.memory",
		`{"containers": [{"resources": {"claims": [{"name": "a"}]}}]}`:                          "resources.claims",
		`{"containers": "a"}`: "containers",
	} {
		b := blueprint{}
		b.PodTemplate.Spec = fields(t, text)
		got := translate(b)
		if err := got.err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	yes := true
	got := translate(blueprint{PodTemplate: podTemplate{Spec: fields(t, `{"containers": [{"name": "a"}]}`)}, Service: &yes, VolumeClaimTemplates: []any{"v"}})
	if err := got.err(); err == nil || !strings.Contains(err.Error(), "volumeClaimTemplates, service: true") {
		t.Error(err)
	}
	many := object{}
	for _, c := range strings.Split(strings.Repeat("x", 3000), "") {
		many[strings.Repeat(c, len(many)+1)] = 1
	}
	got = translate(blueprint{PodTemplate: podTemplate{Spec: many}})
	if err := got.err(); err == nil || len(err.Error()) > 6000 {
		t.Errorf("a message of %d bytes", len(err.Error()))
	}
}

func TestTemplateNetwork(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`:                                       `{"mode":"open"}`,
		`{"networkPolicyManagement": "Managed"}`:   `{"mode":"open"}`,
		`{"networkPolicy": {}}`:                    `{"mode":"none"}`,
		`{"networkPolicy": {"egress": []}}`:        `{"mode":"none"}`,
		`{"networkPolicyManagement": "Unmanaged"}`: `networkPolicyManagement: Unmanaged`,
		`{"networkPolicy": {"ingress": [{}]}}`:     `networkPolicy.ingress`,
		`{"networkPolicy": {"egress": [{}]}}`:      `networkPolicy.egress[0] without to`,
		`{"networkPolicy": {"egress": [{"to": [{"namespaceSelector": {"a": "b"}}]}]}}`:                                                                           `egress[0].to[0].namespaceSelector`,
		`{"networkPolicy": {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}], "ports": [{"port": 443, "protocol": "TCP"}]}]}}`: `{"mode":"allow-list","allow":["10.0.0.0/8:443"],"block":["10.1.0.0/16"]}`,
		`{"networkPolicy": {"egress": [{"to": [{"ipBlock": {"cidr": "2001:db8::/32"}}], "ports": [{"port": 443}]}]}}`:                                            `{"mode":"allow-list","allow":["[2001:db8::]/32:443"]}`,
		`{"networkPolicy": {"egress": [{"to": [{"ipBlock": {"cidr": "all"}}]}]}}`:                                                                                `ipBlock.cidr`,
		`{"networkPolicy": {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 53, "protocol": "UDP"}]}]}}`:                             `ports[0] that is not a number of TCP`,
		`{"networkPolicy": {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 1, "endPort": 9}]}]}}`:                                   `ports[0].endPort`,
	} {
		var spec templateSpec
		if err := json.Unmarshal([]byte(text), &spec); err != nil {
			t.Fatal(err)
		}
		n, err := templateNetwork(spec)
		b, _ := json.Marshal(n)
		if err != nil {
			b = []byte(err.Error())
		}
		if !strings.Contains(string(b), want) {
			t.Errorf("%s: %s", text, b)
		}
	}
}
