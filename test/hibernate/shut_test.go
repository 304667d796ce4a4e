package hibernate

import (
	"os"
	"testing"

	"hutch"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
)

// Files without any permission are kept like others, with their content and permissions.
func TestFilesThatNobodyMayRead(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			if runtime == "native" && os.Geteuid() != 0 {
				t.Skip("without root, no program inside can read them")
			}
			var r room
			r.Engine = hutchtest.Engine(t, runtime, func(o *engine.Options) { r.dir = o.Dir })
			sb, err := r.Create(t.Context(), hutch.CreateRequest{SleepAfter: 0.5, OnIdle: hutch.IdleStop})
			must(t, err)
			r.run(t, sb.ID, "mkdir shut; echo one > shut/file; chmod 0 shut; echo two > file; chmod 0 file")
			snap, err := r.Snapshot(t.Context(), sb.ID, hutch.SnapshotRequest{FilesOnly: true})
			must(t, err)
			child, err := r.Create(t.Context(), hutch.CreateRequest{Snapshot: snap.ID, FilesOnly: true})
			must(t, err)
			r.until(t, sb.ID, hutch.Stopped)
			const look = "stat -c %a shut file; cat file 2>/dev/null; chmod 700 shut; chmod 600 file; cat shut/file file"
			for whose, id := range map[string]string{"the sleeper": sb.ID, "the copy": child.ID} {
				if got := r.run(t, id, look); got != "0\n0\none\ntwo" {
					t.Errorf("%s has %q", whose, got)
				}
			}
		})
	}
}
