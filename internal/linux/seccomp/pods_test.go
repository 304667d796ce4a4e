package seccomp

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"testing"
)

var update = flag.Bool("update", false, "write the profile")

// making are the calls with which a server without privileges creates sandboxes. It mounts, enters and traces in user
// namespaces, where the kernel checks capabilities as usual. The programs in sandboxes are limited by the filters of
// this package and of gVisor.
var making = []string{
	"clone3", "setns", "mount", "umount2", "pivot_root", "chroot", "mount_setattr", "move_mount", "open_tree", "open_tree_attr",
	"fsopen", "fsconfig", "fsmount", "fspick", "statmount", "listmount", "name_to_handle_at", "open_by_handle_at",
	"ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_mrelease",
	"sethostname", "setdomainname",
}

// TestProfileForPods: the profile for pods that deploy/kubernetes ships consists of the policy for sandboxed programs
// and of the calls that create sandboxes. `go test -run Pods -update` writes it.
func TestProfileForPods(t *testing.T) {
	type group struct {
		Names    []string `json:"names"`
		Action   string   `json:"action"`
		ErrnoRet *int     `json:"errnoRet,omitempty"`
	}
	notPermitted, noSuchCall := 1, 38
	allow := slices.Concat(allowed, ignored, making, slices.Collect(maps.Keys(conditions)))
	refuse := slices.DeleteFunc(slices.Clone(denied), func(name string) bool { return slices.Contains(making, name) })
	for _, list := range []*[]string{&allow, &refuse} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	for _, name := range []string{"bpf", "keyctl", "add_key", "io_uring_setup", "userfaultfd", "perf_event_open", "init_module", "kexec_load", "reboot"} {
		if slices.Contains(allow, name) {
			t.Errorf("the profile allows %s", name)
		}
	}
	// Architectures are left out, so that the profile applies to that of the machine.
	profile, err := json.MarshalIndent(map[string]any{
		"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": noSuchCall,
		"syscalls": []group{{allow, "SCMP_ACT_ALLOW", nil}, {refuse, "SCMP_ACT_ERRNO", &notPermitted}},
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	profile = append(profile, '\n')
	const file = "../../../deploy/kubernetes/chart/seccomp/hutch.json"
	if *update {
		if err := os.WriteFile(file, profile, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := os.ReadFile(file); err != nil || !bytes.Equal(kept, profile) {
		t.Errorf("%s is not what the policy says: run `go test -run Pods -update` here (%v)", file, err)
	}
}
