package escape

import (
	"context"
	"strings"
	"testing"
	"time"

	"hutch"
)

// changeAgent waits for a process that runs the agent's program. Then it tries to make that program executable for no
// user, to change its times, and to give it an attribute.
const changeAgent = `
import os
os.write(1, b"ready\n")
seen = set(os.listdir("/proc"))
while True:
    for pid in os.listdir("/proc"):
        if pid in seen or not pid.isdigit(): continue
        try:
            path = "/proc/%s/exe" % pid
            if os.readlink(path).startswith(("/usr/", "/bin/")): continue # one of the image
            fd = os.open(path, os.O_RDONLY)
        except OSError: continue
        said = []
        for name, change in ("mode", lambda: os.fchmod(fd, 0)), ("times", lambda: os.utime(fd)), ("attributes", lambda: os.setxattr(fd, "user.evil", b"1")):
            try:
                change()
                said.append("changed the " + name)
            except OSError as e: said.append("refused: %s" % e)
        os.write(1, ", ".join(sorted(said)).encode())
        seen.add(pid)
`

// A script whose interpreter is /proc/self/exe makes the agent's program run as the user. The user still cannot change
// the program, so other sandboxes can start from it.
func TestProgramOfTheAgentFromInside(t *testing.T) {
	each(t, func(t *testing.T, f *field) {
		id := f.sandbox(t, hutch.CreateRequest{})
		f.put(t, id, "/workspace/script", "#!/proc/self/exe --version\n")
		f.sh(t, id, "chmod +x /workspace/script")
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan string, 1)
		said := make(chan string, 1000)
		go func() {
			r, _ := f.svc.Exec(ctx, id, hutch.ExecRequest{Language: "python", Command: changeAgent, Timeout: 60}, func(o hutch.Output) error {
				said <- string(o.Data)
				return nil
			})
			ended <- string(r.Stderr)
		}()
		defer func() { leave(); <-ended }()
		if ready := <-said; ready != "ready\n" {
			t.Fatal(ready)
		}
		if out := f.runScript(t, id, said); !strings.HasPrefix(out, "refused") {
			t.Errorf("a program inside meets the agent's program: %q", out)
		}
		f.checkWorks(t, f.sandbox(t, hutch.CreateRequest{}))
	})
}

// runScript executes the script until said has a report.
func (f *field) runScript(t *testing.T, id string, said <-chan string) string {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		f.svc.Exec(t.Context(), id, hutch.ExecRequest{Command: "/workspace/script"}, nil)
		select {
		case out := <-said:
			return out
		default:
		}
	}
	return "nothing"
}

// greedyPacker replaces tar by a script that records its capabilities. It stands for every program that the program
// that saves files could be made to run.
const greedyPacker = `
mkdir -p /workspace/bin
cat > /workspace/bin/note <<'end'
#!/bin/sh
grep CapEff /proc/self/status >> /workspace/noted
end
printf '#!/bin/sh\n/workspace/bin/note\nexec /usr/bin/tar "$@"\n' > /workspace/bin/tar
chmod +x /workspace/bin/*`

// TestProgramThatSavesFiles: the program that saves the files of a sandbox can read all of them. No variable of the
// sandbox makes it run code of the sandbox.
func TestProgramThatSavesFiles(t *testing.T) {
	each(t, func(t *testing.T, f *field) {
		if f.begin != "" {
			return // the variables of a copy are those of its original
		}
		id := f.sandbox(t, hutch.CreateRequest{Env: map[string]string{
			"PATH": "/workspace/bin:/usr/local/bin:/usr/bin:/bin", "TAR_OPTIONS": "--checkpoint=1 --checkpoint-action=exec=/workspace/bin/note",
		}})
		f.sh(t, id, greedyPacker)
		snap, err := f.svc.Snapshot(t.Context(), id, hutch.SnapshotRequest{FilesOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.svc.DeleteSnapshot(t.Context(), snap.ID); err != nil {
			t.Error(err)
		}
		if out := f.sh(t, id, "cat /workspace/noted 2>/dev/null || true"); out != "" {
			t.Errorf("code of the sandbox saves its files, with %s", out)
		}
	})
}
