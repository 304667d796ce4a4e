package host

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"hutch/internal/driver"
)

// podFixes are the fixes for a finding of a runtime in a Kubernetes pod, by the finding's name. The runtimes' own fixes
// are for machines.
var podFixes = map[string]string{
	"control groups":    "no pod without privileges can do this: bound all sandboxes of the node together by the pod's resources.limits, or use the preset privileged (docs/kubernetes.md)",
	"sandbox":           "let the pod make user namespaces: securityContext.seccompProfile {type: Localhost, localhostProfile: hutch.json}, with that profile on the machine (seccomp.install of the chart); where AppArmor is on, add appArmorProfile {type: Unconfined}",
	"namespaces":        "use gvisor; native needs hostUsers: false and procMount: Unmasked, which is the preset user-namespaces, or the preset privileged (docs/kubernetes.md)",
	"user ids":          "use gvisor for code that you do not trust, or the preset privileged, where the server is root and gives each sandbox ids of its own",
	"subordinate ids":   "use gvisor for images that need root, or the preset privileged",
	"network devices":   "use gvisor, which needs no device, or the preset privileged",
	"files of the host": "use gvisor, or machines with Linux 5.11 or newer",
}

// Check examines a runtime. In a pod, its fixes are for Kubernetes.
func Check(ctx context.Context, d driver.Driver) driver.Report {
	r := d.Check(ctx)
	if hosts, _ := os.ReadFile("/etc/hosts"); inPod(string(hosts)) {
		r.Findings = forPod(r.Findings)
	}
	if !r.OK && Optional(d.Name()) {
		r.Findings = forOptional(d.Name(), r.Findings)
	}
	return r
}

// Optional reports whether a runtime is used only by those who choose it by name, so that a server can work without it.
func Optional(runtime string) bool { return slices.Contains(onRequest, runtime) }

// forOptional makes the errors of an optional runtime warnings that say what they prevent.
func forOptional(runtime string, findings []driver.Finding) []driver.Finding {
	for i, f := range findings {
		if f.Level == driver.Bad {
			findings[i].Level = driver.Warning
			findings[i].Detail = fmt.Sprintf("optional: without it, only sandboxes with --runtime %s cannot be created (%s)", runtime, f.Detail)
		}
	}
	return findings
}

// inPod reports whether a hosts file was written by a kubelet, which writes one for each pod.
func inPod(hosts string) bool { return strings.HasPrefix(hosts, "# Kubernetes-managed hosts file") }

func forPod(findings []driver.Finding) []driver.Finding {
	for i, f := range findings {
		if fix, ok := podFixes[f.Name]; ok && f.Level != driver.Good {
			findings[i].Fix = fix
		}
	}
	return findings
}
