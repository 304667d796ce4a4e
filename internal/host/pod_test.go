package host

import (
	"strings"
	"testing"

	"hutch/internal/driver"
)

// TestPodFixes: if a finding is in podFixes, forPod replaces its fix by a change of the pod. Good findings, and findings
// that are not in podFixes, stay as they are.
func TestPodFixes(t *testing.T) {
	if !inPod("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n") || inPod("127.0.0.1 localhost\n") || inPod("") {
		t.Error("a pod is not told from a machine by its hosts file")
	}
	got := forPod([]driver.Finding{
		{Name: "sandbox", Level: driver.Bad, Fix: "make build"},
		{Name: "control groups", Level: driver.Warning, Fix: "mount -t cgroup2 none /sys/fs/cgroup"},
		{Name: "namespaces", Level: driver.Good},
		{Name: "hutch-runsc", Level: driver.Bad, Fix: "make build"},
	})
	for i, want := range []string{"hutch.json", "resources.limits", "", "make build"} {
		if !strings.Contains(got[i].Fix, want) || want == "" && got[i].Fix != "" {
			t.Errorf("the fix of %s is %q", got[i].Name, got[i].Fix)
		}
	}
	for name, fix := range podFixes {
		for _, machine := range []string{"docker", "systemd", "sudo", "modprobe"} {
			if strings.Contains(fix, machine) {
				t.Errorf("the fix of %s is for a machine: %s", name, fix)
			}
		}
	}
}
