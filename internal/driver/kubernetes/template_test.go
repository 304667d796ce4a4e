package kubernetes

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/memguard"
)

const template = `apiVersion: v1
kind: Pod
metadata: {namespace: boxes, labels: {team: a}}
spec:
  runtimeClassName: gvisor
  nodeSelector: {pool: boxes}
  containers:
    - name: sandbox
      image: hutch:1
      resources: {requests: {cpu: 50m}}
      securityContext: {seccompProfile: {type: Localhost, localhostProfile: hutch.json}}
`

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBadTemplates: settings that a sandbox would ignore, or must not have, are refused by name when the server starts.
func TestBadTemplates(t *testing.T) {
	replace := func(old, new string) string {
		if !strings.Contains(template, old) {
			t.Fatalf("the template has no %q", old)
		}
		return strings.Replace(template, old, new, 1)
	}
	for want, text := range map[string]string{
		"not a Pod":                    replace("kind: Pod", "kind: Deployment"),
		"metadata.namespace":           replace("namespace: boxes, ", ""),
		"metadata.name must":           replace("{namespace:", "{name: one, namespace:"),
		`unknown field "runtimeClass`:  replace("runtimeClassName", "runtimeClass"),
		"hostNetwork":                  replace("  nodeSelector", "  hostNetwork: true\n  nodeSelector"),
		"hostPID, hostIPC":             replace("  nodeSelector", "  hostPID: true\n  nodeSelector"),
		"spec.volumes":                 replace("  nodeSelector", "  volumes: [{name: host, hostPath: {path: /}}]\n  nodeSelector"),
		`named "sandbox"`:              replace("name: sandbox", "name: other"),
		"with an image":                replace("image: hutch:1", "imagePullPolicy: Never"),
		`"sandbox" may only`:           replace("image: hutch:1", "image: hutch:1\n      command: [sh]"),
		"may only have image, image":   replace("image: hutch:1", "image: hutch:1\n      env: [{name: KEY, value: secret}]"),
		"imagePullPolicy, resources":   replace("requests: {cpu: 50m}", "limits: {cpu: 1}"),
		"settings of its security":     replace("{seccompProfile", "{privileged: true, seccompProfile"),
		"spec.initContainers may only": replace("  containers:", "  initContainers: [{name: evil, image: x}]\n  containers:"),
	} {
		_, err := New(Options{Dir: t.TempDir(), Pod: write(t, text)})
		if !errors.Is(err, hutch.Invalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--kubernetes-pod") {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := New(Options{Dir: t.TempDir()}); !errors.Is(err, ErrNoTemplate) {
		t.Errorf("without a template: %v", err)
	}
	if _, err := New(Options{Dir: t.TempDir(), Pod: "/nonexistent/pod.yaml"}); !errors.Is(err, hutch.Invalid) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestPod: a pod keeps the template's settings of the placement, and has no privilege, no token and no volume of the
// machine.
func TestPod(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	d, err := New(Options{Dir: t.TempDir(), Pod: write(t, template)})
	if err != nil {
		t.Fatal(err)
	}
	spec := driver.Spec{ID: "one", Limits: hutch.Limits{CPU: 0.5, Memory: 512, Disk: 100, PIDs: 64}}
	pod := d.pod(spec, "abc", "")
	if pod.Name != "hutch-abc-one" || pod.Namespace != "boxes" || pod.Labels["team"] != "a" || pod.Labels[sandboxLabel] != "one" || *pod.Spec.RuntimeClassName != "gvisor" || pod.Spec.NodeSelector["pool"] != "boxes" {
		t.Errorf("the pod is %+v", pod.ObjectMeta)
	}
	if *pod.Spec.AutomountServiceAccountToken || pod.Spec.RestartPolicy != core.RestartPolicyNever || len(pod.Spec.Volumes) != 1 || pod.Spec.Volumes[0].EmptyDir == nil {
		t.Errorf("the spec is %+v", pod.Spec)
	}
	main, installer := pod.Spec.Containers[0], pod.Spec.InitContainers[0]
	for _, c := range []core.Container{main, installer} {
		s := c.SecurityContext
		if *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || *s.SeccompProfile.LocalhostProfile != "hutch.json" {
			t.Errorf("%s has %+v", c.Name, s)
		}
		if len(c.Env)+len(c.EnvFrom) > 0 || len(c.VolumeMounts) != 1 || c.Resources.Limits.Memory().Value() != memguard.LimitsOf(512<<20).Last() || c.Resources.Limits.Cpu().MilliValue() != 500 || c.Resources.Requests.Cpu().MilliValue() != 50 || c.Resources.Requests.Memory().Value() != memguard.LimitsOf(512<<20).Soft {
			t.Errorf("%s is %+v", c.Name, c)
		}
	}
	if !slices.Equal(main.SecurityContext.Capabilities.Add, firstCapabilities) || len(installer.SecurityContext.Capabilities.Add) > 0 || main.Image != "hutch:1" {
		t.Errorf("the capabilities of %s are %v", main.Image, main.SecurityContext.Capabilities.Add)
	}
	if image := d.pod(spec, "abc", "python@sha256:1").Spec; image.Containers[0].Image != "python@sha256:1" || image.InitContainers[0].Image != "hutch:1" {
		t.Errorf("with an image the containers are %+v", image)
	}
	if d.template.Spec.Containers[0].Command != nil || d.template.Labels[sandboxLabel] != "" {
		t.Error("a pod changed the template")
	}
}

// TestNoCluster: if the cluster cannot be reached, the finding names it and the fix. Sweep needs no cluster if the
// driver has made nothing.
func TestNoCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, file := range []string{"/nonexistent", write(t, `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}]}`)} {
		t.Setenv("KUBECONFIG", file)
		d, err := New(Options{Dir: t.TempDir(), Pod: write(t, template)})
		if err != nil {
			t.Fatal(err)
		}
		r := d.Check(t.Context())
		if r.OK || len(r.Findings) != 1 || r.Findings[0].Name != "cluster" || !strings.Contains(r.Findings[0].Fix, "KUBECONFIG") {
			t.Errorf("%s: %+v", file, r)
		}
		if n, err := d.Sweep(t.Context(), func(string) bool { return false }); n != 0 || err != nil {
			t.Errorf("swept %d, %v", n, err)
		}
	}
}

// TestTrouble: the reason why a pod waits is reported. If longer waiting does not help, the sandbox fails at once.
func TestTrouble(t *testing.T) {
	for want, pod := range map[string]core.Pod{
		"final ErrImagePull": {Status: core.PodStatus{ContainerStatuses: []core.ContainerStatus{{Name: "sandbox", State: core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}}}}},
		"final agent ended":  {Status: core.PodStatus{InitContainerStatuses: []core.ContainerStatus{{Name: "agent", State: core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: 127}}}}}},
		"final Evicted":      {Status: core.PodStatus{Phase: core.PodFailed, Reason: "Evicted"}},
		"waits 0/3 nodes":    {Status: core.PodStatus{Phase: core.PodPending, Conditions: []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse, Message: "0/3 nodes"}}}},
		"waits Pending":      {Status: core.PodStatus{Phase: core.PodPending, ContainerStatuses: []core.ContainerStatus{{State: core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "ContainerCreating"}}}}}},
	} {
		how, text, _ := strings.Cut(want, " ")
		why, final := waitReason(&pod)
		if final != (how == "final") || !strings.Contains(why, text) {
			t.Errorf("%s: %q, %v", want, why, final)
		}
	}
}
