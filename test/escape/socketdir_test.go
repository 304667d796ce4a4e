package escape

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/hutchtest"
)

// A program that became root inside gVisor, through an unknown hole, cannot fill the host's disk through the one folder
// that has the socket between daemon and agent.
func TestRootInsideCannotFillTheHost(t *testing.T) {
	t.Parallel()
	f := newField(t, "gvisor")
	id := f.sandbox(t, hutch.CreateRequest{})
	out := f.rootInside(t, `cd /.hutch/run || exit 3
		head -c 8M /dev/zero > full 2>/dev/null && echo wrote 8 MiB
		rm -f full; mkdir $(seq -f many%g 500) 2>/dev/null && echo made 500 folders
		ls | wc -l; rm -rf many*; mv agent.sock aside && mv aside agent.sock && echo still root`)
	if strings.Contains(out, "wrote") || strings.Contains(out, "made") || !strings.Contains(out, "still root") {
		t.Errorf("as root inside:\n%s", out)
	}
	f.checkWorks(t, id)
	filepath.WalkDir(f.dir, func(path string, _ os.DirEntry, _ error) error {
		if name := filepath.Base(path); name == "agent.sock" || strings.HasPrefix(name, "many") {
			t.Errorf("the host has %s, that root inside made", path)
		}
		return nil
	})
}

// rootInside runs a command line as root in the only sandbox of the field: what a hole in
// gVisor or in the agent would give an attacker.
func (f *field) rootInside(t *testing.T, command string) string {
	t.Helper()
	states, err := filepath.Glob(filepath.Join(f.dir, "*", "*", "runsc"))
	if err != nil || len(states) != 1 {
		t.Fatalf("the states of runsc: %q, %v", states, err)
	}
	cmd := exec.Command(hutchtest.Program(t, "hutch-runsc"), "--root="+states[0], "--ignore-cgroups", "exec", "agent", "/bin/sh", "-c", command)
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "still root") {
		t.Fatalf("runsc exec: %v: %s", err, out)
	}
	return string(out)
}
