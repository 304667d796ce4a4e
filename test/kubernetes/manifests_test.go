package kubernetes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"

	"hutch/internal/hutchtest"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// everything has the values that turn on every option.
var everything = values{
	"ingress": values{"enabled": true, "className": "nginx"}, "monitoring": values{"enabled": true},
	"seccomp": values{"install": true}, "env": values{"HUTCH_POOL": "8"}, "appArmor": "Unconfined",
	"bucket":      values{"url": "s3://hutch/fleet?region=eu-1"},
	"nodeLabels":  values{"zone": "$(ZONE)", "pool": "gpu"},
	"nodeTaints":  values{"gpu": "yes"},
	"tolerations": []any{values{"key": "hutch", "operator": "Exists"}},
}

// kinds returns the types of the objects that the chart makes.
func kinds() map[string]any {
	return map[string]any{
		"StatefulSet": &apps.StatefulSet{}, "DaemonSet": &apps.DaemonSet{}, "Service": &core.Service{}, "ServiceAccount": &core.ServiceAccount{},
		"ConfigMap": &core.ConfigMap{}, "Ingress": &networking.Ingress{}, "NetworkPolicy": &networking.NetworkPolicy{},
		"PodDisruptionBudget": &policy.PodDisruptionBudget{},
	}
}

// typed decodes an object into its type of Kubernetes. A field that the type does not have is an error.
func typed(t testing.TB, doc values) any {
	t.Helper()
	kind, _ := doc["kind"].(string)
	v := kinds()[kind]
	if v == nil {
		t.Fatalf("a %s is not expected", kind)
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		t.Errorf("%s: %v", kind, err)
	}
	return v
}

// find returns the object of a type in a manifest.
func find[T any](t testing.TB, manifest string) *T {
	t.Helper()
	for _, doc := range documents(t, manifest) {
		if v, ok := typed(t, doc).(*T); ok {
			return v
		}
	}
	t.Fatalf("the manifest has no %T", *new(T))
	return nil
}

// TestTypes: each object has the fields of its type and no others, and all labels, names and namespaces fit.
func TestTypes(t *testing.T) {
	for name, preset := range presets(t) {
		for _, over := range []values{{}, everything, {"persistence": values{"enabled": false}}} {
			for _, doc := range documents(t, render(t, "box", "elsewhere", preset, over)) {
				typed(t, doc)
				meta := doc["metadata"].(values)
				if meta["namespace"] != "elsewhere" || !strings.HasPrefix(fmt.Sprint(meta["name"]), "box") {
					t.Errorf("%s: the %s is %v in %v", name, doc["kind"], meta["name"], meta["namespace"])
				}
			}
			manifest := render(t, "box", "elsewhere", preset, over)
			set := find[apps.StatefulSet](t, manifest)
			for k, v := range find[core.Service](t, manifest).Spec.Selector {
				if set.Spec.Template.Labels[k] != v || set.Spec.Selector.MatchLabels[k] != v {
					t.Errorf("%s: the label %s is not the same everywhere", name, k)
				}
			}
		}
	}
}

// TestUnprivileged: by default, and with a user namespace, a pod has no privilege: nothing of the machine, no capability, no root,
// no way to get any, and a profile of system calls.
func TestUnprivileged(t *testing.T) {
	all := presets(t)
	for _, name := range []string{"unprivileged", "user-namespaces"} {
		set := find[apps.StatefulSet](t, render(t, "hutch", "hutch", all[name], everything))
		pod := set.Spec.Template.Spec
		if pod.HostNetwork || pod.HostPID || pod.HostIPC {
			t.Errorf("%s: the pod has namespaces of the machine", name)
		}
		if mapped := pod.HostUsers != nil && !*pod.HostUsers; mapped != (name == "user-namespaces") {
			t.Errorf("%s: hostUsers is %v", name, pod.HostUsers)
		}
		s := pod.SecurityContext
		if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 || s.RunAsGroup == nil || *s.RunAsGroup == 0 {
			t.Errorf("%s: the pod can be root: %+v", name, s)
		}
		if s.SeccompProfile == nil || s.SeccompProfile.Type != core.SeccompProfileTypeLocalhost || *s.SeccompProfile.LocalhostProfile != "hutch.json" {
			t.Errorf("%s: the profile is %+v", name, s.SeccompProfile)
		}
		if len(pod.InitContainers)+len(pod.EphemeralContainers) != 0 || len(pod.Containers) != 1 {
			t.Fatalf("%s: the pod has further containers", name)
		}
		c := pod.Containers[0].SecurityContext
		switch {
		case c.Privileged != nil && *c.Privileged, c.AllowPrivilegeEscalation == nil, *c.AllowPrivilegeEscalation,
			c.ReadOnlyRootFilesystem == nil, !*c.ReadOnlyRootFilesystem,
			len(c.Capabilities.Add) != 0, !slices.Equal(c.Capabilities.Drop, []core.Capability{"ALL"}),
			c.SeccompProfile != nil, c.RunAsUser != nil:
			t.Errorf("%s: the container has privileges: %+v", name, c)
		}
		for _, v := range pod.Volumes {
			if v.EmptyDir == nil {
				t.Errorf("%s: the volume %s is not empty at first", name, v.Name)
			}
		}
	}
}

// TestPods: with every preset, sandboxes outlive their pod, and a pod has access to nothing of the cluster.
func TestPods(t *testing.T) {
	for name, preset := range presets(t) {
		for _, keeps := range []bool{true, false} {
			manifest := render(t, "hutch", "hutch", preset, values{"persistence": values{"enabled": keeps}})
			set := find[apps.StatefulSet](t, manifest)
			pod := set.Spec.Template.Spec
			if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
				t.Errorf("%s: the pod has a token for the cluster", name)
			}
			if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
				t.Errorf("%s: a service with the name of Hutch sets HUTCH_PORT, and so on", name)
			}
			// SleepAll has two minutes, requests ten seconds, and preStop its own.
			if *pod.TerminationGracePeriodSeconds < 150 {
				t.Errorf("%s: the pod is killed after %d s", name, *pod.TerminationGracePeriodSeconds)
			}
			env := map[string]core.EnvVar{}
			for _, e := range pod.Containers[0].Env {
				env[e.Name] = e
			}
			for _, secret := range []string{"HUTCH_STORE", "HUTCH_SECRET_KEY", "SANDBOX_AUTH_TOKEN"} {
				if env[secret].Value != "" || env[secret].ValueFrom == nil || env[secret].ValueFrom.SecretKeyRef == nil {
					t.Errorf("%s: %s is not of a Secret", name, secret)
				}
			}
			if env["HUTCH_FLEET_JOIN"].Value != "true" || env["HUTCH_SLEEP_ON_EXIT"].Value != "true" {
				t.Errorf("%s: nodes do not join, or do not put their sandboxes to sleep", name)
			}
			// If a volume outlives the pod, what the node holds outlives it, too. Then a node with another volume must
			// not take its place.
			if _, replaces := env["HUTCH_FLEET_REPLACE"]; replaces == keeps || len(set.Spec.VolumeClaimTemplates) == 1 != keeps {
				t.Errorf("%s: with volumes %v, a node replaces %v", name, keeps, replaces)
			}
			if probe := pod.Containers[0].ReadinessProbe; probe == nil || probe.HTTPGet.Path != "/ready" {
				t.Errorf("%s: the pod is ready by %+v", name, probe)
			}
			if most := find[policy.PodDisruptionBudget](t, manifest).Spec.MaxUnavailable; most == nil || most.IntValue() != 1 {
				t.Errorf("%s: %v nodes can be away", name, most)
			}
		}
	}
}

// TestSettings: each variable that the chart sets is a setting of `hutch serve`.
func TestSettings(t *testing.T) {
	out, err := exec.Command(hutchtest.Program(t, "hutch"), "serve", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	special := []string{"HUTCH_DATA", "HUTCH_SECRET_KEY"}
	set := find[apps.StatefulSet](t, render(t, "hutch", "hutch", everything))
	for _, e := range set.Spec.Template.Spec.Containers[0].Env {
		name, ok := strings.CutPrefix(e.Name, "HUTCH_")
		if flag := "--" + strings.ToLower(strings.ReplaceAll(name, "_", "-")) + " "; ok && !slices.Contains(special, e.Name) && !strings.Contains(string(out), flag) {
			t.Errorf("%s sets nothing: hutch serve has no %s", e.Name, flag)
		}
	}
}

// TestNodeLabels: nodes have the labels and taints of the values, which can name the zone of the pod.
func TestNodeLabels(t *testing.T) {
	env := map[string]core.EnvVar{}
	zone := false // before the variable that names it
	for _, e := range find[apps.StatefulSet](t, render(t, "hutch", "hutch", everything)).Spec.Template.Spec.Containers[0].Env {
		env[e.Name] = e
		zone = zone || e.Name == "ZONE" && env["HUTCH_NODE_LABEL"].Name == ""
	}
	if got := env["HUTCH_NODE_LABEL"].Value; got != "pool=gpu,zone=$(ZONE)" || !zone || env["ZONE"].ValueFrom.FieldRef.FieldPath != "metadata.labels['topology.kubernetes.io/zone']" {
		t.Errorf("labels: %q, %+v", got, env["ZONE"])
	}
	if got := env["HUTCH_NODE_TAINT"].Value; got != "gpu=yes" {
		t.Errorf("taints: %q", got)
	}
}

// TestBucket: the keys of a bucket come from the Secret, and a Secret without them is not an error.
func TestBucket(t *testing.T) {
	for name, preset := range presets(t) {
		for _, with := range []bool{true, false} {
			over := values{}
			if with {
				over = everything
			}
			var address string
			keys := 0
			for _, e := range find[apps.StatefulSet](t, render(t, "hutch", "hutch", preset, over)).Spec.Template.Spec.Containers[0].Env {
				if e.Name == "HUTCH_FLEET_BUCKET" {
					address = e.Value
				}
				if strings.HasPrefix(e.Name, "AWS_") && e.Value == "" && *e.ValueFrom.SecretKeyRef.Optional {
					keys++
				}
			}
			if with && (address != "s3://hutch/fleet?region=eu-1" || keys != 2) || !with && (address != "" || keys != 0) {
				t.Errorf("%s: with a bucket %v, nodes write to %q with %d keys", name, with, address, keys)
			}
		}
	}
}

// TestNetworkPolicy: only nodes reach the door between nodes, and sandboxes reach neither the cluster nor the machines' metadata.
func TestNetworkPolicy(t *testing.T) {
	for name, preset := range presets(t) {
		t.Run(name, func(t *testing.T) {
			checkNetworkPolicy(t, find[networking.NetworkPolicy](t, render(t, "hutch", "hutch", preset)))
		})
	}
}

func checkNetworkPolicy(t *testing.T, p *networking.NetworkPolicy) {
	t.Helper()
	if len(p.Spec.PolicyTypes) != 2 {
		t.Errorf("the policy is for %v", p.Spec.PolicyTypes)
	}
	for _, rule := range p.Spec.Ingress {
		for _, port := range rule.Ports {
			if port.Port.IntValue() == 7701 && len(rule.From) == 0 {
				t.Error("everybody reaches the door between nodes")
			}
		}
		if len(rule.Ports) == 0 {
			t.Error("a rule lets all ports in")
		}
	}
	world := false
	for _, rule := range p.Spec.Egress {
		for _, to := range rule.To {
			if to.IPBlock == nil || to.IPBlock.CIDR != "0.0.0.0/0" {
				continue
			}
			world = true
			for _, private := range []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4"} {
				if !slices.Contains(to.IPBlock.Except, private) {
					t.Errorf("sandboxes can reach %s", private)
				}
			}
		}
		if len(rule.To) == 0 && len(rule.Ports) == 0 {
			t.Error("a rule lets everything out")
		}
	}
	if !world {
		t.Error("sandboxes reach no address")
	}
}

// TestPodMonitor: Prometheus' operator finds the pods by their labels, and the port by its name.
func TestPodMonitor(t *testing.T) {
	for _, on := range []bool{true, false} {
		set := find[apps.StatefulSet](t, render(t, "hutch", "hutch", values{"monitoring": values{"enabled": on}}))
		monitors := 0
		for _, doc := range documents(t, render(t, "hutch", "hutch", values{"monitoring": values{"enabled": on, "serviceMonitor": true}})) {
			if doc["kind"] != "PodMonitor" {
				continue
			}
			monitors++
			spec := doc["spec"].(values)
			for k, v := range spec["selector"].(values)["matchLabels"].(values) {
				if set.Spec.Template.Labels[k] != v {
					t.Errorf("the pods have the label %s=%q, not %q", k, set.Spec.Template.Labels[k], v)
				}
			}
			port := spec["podMetricsEndpoints"].([]any)[0].(values)["port"]
			if !slices.ContainsFunc(set.Spec.Template.Spec.Containers[0].Ports, func(p core.ContainerPort) bool { return p.Name == port && p.ContainerPort == 9464 }) {
				t.Errorf("the pods have no port %v", port)
			}
		}
		if monitors != map[bool]int{true: 1}[on] {
			t.Errorf("with monitoring %v there are %d monitors", on, monitors)
		}
	}
}

// TestBadPreset: an unknown preset is refused, and the manifest is not applied without it.
func TestBadPreset(t *testing.T) {
	if !slices.Contains([]string{"unprivileged"}, readYAML(t, chart+"/values.yaml")["preset"].(string)) {
		t.Error("the default preset is not unprivileged")
	}
	refused := func() (err any) {
		defer func() { err = recover() }()
		render(failing{t}, "hutch", "hutch", values{"preset": "previleged"})
		return nil
	}
	if err := refused(); err == nil || !strings.Contains(fmt.Sprint(err), "preset is none of") {
		t.Errorf("a preset that is none: %v", err)
	}
}

// failing turns a failure into a panic.
type failing struct{ testing.TB }

func (f failing) Fatal(args ...any) { panic(fmt.Sprint(args...)) }
