//go:build kubernetes

package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestHelm: Helm renders the chart to the same objects as the plain manifests.
func TestHelm(t *testing.T) {
	dir, err := exec.Command("./programs", strings.Fields(os.Getenv("HUTCH_KUBERNETES"))...).Output()
	if err != nil {
		t.Fatal(err)
	}
	helm := filepath.Join(strings.TrimSpace(string(dir)), "bin", "helm")
	for name, preset := range presets(t) {
		args := []string{"template", "hutch", chart, "--namespace", "hutch", "--kube-version", "1.36.3"}
		if name != "unprivileged" {
			args = append(args, "--values", chart+"/presets/"+name+".yaml")
		}
		for _, over := range []values{{}, {"ingress": values{"enabled": true}, "seccomp": values{"install": true}, "monitoring": values{"enabled": true}}} {
			more := args
			if len(over) > 0 {
				more = append(more, "--set", "ingress.enabled=true,seccomp.install=true,monitoring.enabled=true")
			}
			out, err := exec.Command(helm, more...).Output()
			if err != nil {
				t.Fatalf("helm %s: %v", strings.Join(more, " "), err)
			}
			if got, want := byName(t, string(out)), byName(t, render(t, "hutch", "hutch", preset, over)); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: Helm makes\n%s", name, out)
			}
		}
	}
	if out, err := exec.Command(helm, "lint", "--strict", chart).CombinedOutput(); err != nil {
		t.Errorf("helm lint: %s", out)
	}
	if out, err := exec.Command(helm, "template", chart, "--kube-version", "1.36.3", "--set", "preset=previleged").CombinedOutput(); err == nil || !strings.Contains(string(out), "preset is none of") {
		t.Errorf("a preset that is none: %s", out)
	}
}

func byName(t *testing.T, manifest string) map[string]values {
	all := map[string]values{}
	for _, doc := range documents(t, manifest) {
		all[doc["kind"].(string)+"/"+doc["metadata"].(values)["name"].(string)] = doc
	}
	return all
}
