package kubernetes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
)

// TestAgentSandboxManifest: the manifest of the controller has only the fields of its types; its pod has no privilege;
// its roles allow nothing outside of agent-sandbox but reviews and its own Lease; and its Service has the name and port
// that clients know.
func TestAgentSandboxManifest(t *testing.T) {
	var pod *core.PodSpec
	for _, doc := range documents(t, string(read(t, folder+"/agent-sandbox/controller.yaml"))) {
		kinds := map[string]any{
			"Namespace": &core.Namespace{}, "ServiceAccount": &core.ServiceAccount{}, "Service": &core.Service{}, "Deployment": &apps.Deployment{}, "PodDisruptionBudget": &policy.PodDisruptionBudget{},
			"ClusterRole": &rbac.ClusterRole{}, "ClusterRoleBinding": &rbac.ClusterRoleBinding{}, "Role": &rbac.Role{}, "RoleBinding": &rbac.RoleBinding{},
		}
		v := kinds[fmt.Sprint(doc["kind"])]
		if v == nil {
			t.Fatalf("a %v is not expected", doc["kind"])
		}
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(v); err != nil {
			t.Errorf("%v: %v", doc["kind"], err)
		}
		switch v := v.(type) {
		case *rbac.ClusterRole:
			checkRules(t, v.Name, v.Rules)
		case *rbac.Role:
			for _, r := range v.Rules {
				if !slices.Equal(r.Resources, []string{"leases"}) || !slices.Equal(r.Verbs, []string{"create"}) && !slices.Equal(r.ResourceNames, []string{"hutch-controller"}) {
					t.Errorf("the role allows %+v", r)
				}
			}
		case *apps.Deployment:
			pod = &v.Spec.Template.Spec
			if v.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != v.Spec.Template.Labels["app.kubernetes.io/name"] {
				t.Error("the Deployment does not select its pods")
			}
		case *core.Service:
			if v.Name != "sandbox-router-svc" || v.Spec.Ports[0].Port != 8080 {
				t.Errorf("clients do not find %s", v.Name)
			}
		}
	}
	c := pod.Containers[0].SecurityContext
	if !*pod.SecurityContext.RunAsNonRoot || *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || len(c.Capabilities.Add) > 0 || c.Capabilities.Drop[0] != "ALL" || len(pod.Volumes) > 0 {
		t.Errorf("the pod has privileges: %+v", pod)
	}
}

func checkRules(t *testing.T, name string, rules []rbac.PolicyRule) {
	t.Helper()
	for _, r := range rules {
		group := strings.Join(r.APIGroups, ",")
		reviews := slices.Equal(r.Verbs, []string{"create"}) && (slices.Equal(r.Resources, []string{"tokenreviews"}) || slices.Equal(r.Resources, []string{"subjectaccessreviews"}))
		if !strings.HasSuffix(group, "agents.x-k8s.io") && !reviews || slices.Contains(r.Resources, "*") || slices.Contains(r.Verbs, "*") {
			t.Errorf("%s allows %+v", name, r)
		}
		if name == "hutch-sandbox-user" && slices.Contains(r.Resources, "sandboxes") && slices.ContainsFunc(r.Verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) }) {
			t.Errorf("users can change sandboxes: %+v", r)
		}
	}
}

// TestAgentSandboxResources: the resources are those that clients and the controller use.
func TestAgentSandboxResources(t *testing.T) {
	want := map[string]bool{
		"sandboxes.agents.x-k8s.io": true, "sandboxtemplates.extensions.agents.x-k8s.io": false, "sandboxclaims.extensions.agents.x-k8s.io": true, "sandboxwarmpools.extensions.agents.x-k8s.io": true,
	}
	for _, doc := range documents(t, string(read(t, folder+"/agent-sandbox/crds.yaml"))) {
		name := fmt.Sprint(doc["metadata"].(values)["name"])
		status, ok := want[name]
		delete(want, name)
		version := doc["spec"].(values)["versions"].([]any)[0].(values)
		_, has := version["subresources"]
		if !ok || version["name"] != "v1beta1" || has != status {
			t.Errorf("%s has %v", name, version["name"])
		}
	}
	if len(want) > 0 {
		t.Errorf("there is no %v", want)
	}
}
