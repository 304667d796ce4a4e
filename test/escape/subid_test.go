package escape

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/image"
	"hutch/internal/linux/subid"
)

// TestSharedIDs: sandboxes of a server without root share its subordinate ids. These give no sandbox access to another
// one, or to the server's user. TestSubordinate runs this test.
func TestSharedIDs(t *testing.T) { // not in parallel: it looks at all sandboxes of this process
	if os.Geteuid() == 0 {
		t.Skip("root gives each sandbox ids of its own")
	}
	ids, err := subid.Find()
	if err != nil {
		t.Skip(err)
	}
	root := rootImage(t)
	e := hutchtest.Engine(t, "native", func(o *engine.Options) {
		o.Image = func(context.Context, string) (image.Root, error) { return root, nil }
	})
	run := func(id, command string) string {
		t.Helper()
		r, err := e.Exec(t.Context(), id, hutch.ExecRequest{Command: command, Dir: "/", Timeout: 30}, nil)
		if err != nil {
			t.Fatal(command, err, hutch.AsError(err).Cause)
		}
		return string(r.Stdout)
	}
	for _, id := range []string{"victim", "attacker"} {
		if _, err := e.Create(t.Context(), hutch.CreateRequest{ID: id}); err != nil {
			t.Fatal(err, hutch.AsError(err).Cause)
		}
	}
	run("victim", "/attack write /workspace/mine victim")
	if _, err := e.StartProcess(t.Context(), "victim", hutch.ProcessRequest{Command: "/attack hold", Name: "hold"}); err != nil {
		t.Fatal(err)
	}
	checkHostIDs(t, ids)

	if out := run("attacker", "/attack attack-by-ids"); strings.Contains(out, "REACHED") || strings.Count(out, "denied\t") != 6 {
		t.Errorf("with ids:\n%s", out)
	}
	for _, command := range []string{"/attack write /etc/passwd evil", "/attack write /attacked evil", "/attack rm /workspace", "/attack rm /agents"} {
		run("attacker", command)
	}
	e.Exec(t.Context(), "attacker", hutch.ExecRequest{Command: "/attack kill-all", Dir: "/", Timeout: 10}, nil)
	if _, err := e.Create(t.Context(), hutch.CreateRequest{ID: "later"}); err != nil {
		t.Fatal(err, hutch.AsError(err).Cause)
	}
	for _, id := range []string{"victim", "later"} {
		if out := run(id, "/attack cat /etc/passwd"); !strings.HasPrefix(out, "root:") {
			t.Errorf("%s reads %q", id, out)
		}
		if out := run(id, "/attack ls /"); strings.Contains(out, "attacked") || !strings.Contains(out, "agents") {
			t.Errorf("%s has %q", id, out)
		}
	}
	if out := run("victim", "/attack cat /workspace/mine"); out != "victim" {
		t.Errorf("the victim's file is %q", out)
	}
	list, err := e.Processes(t.Context(), "victim")
	if err != nil || !slices.ContainsFunc(list, func(p hutch.Process) bool { return p.Name == "hold" && p.ExitCode == nil && p.EndTime == nil }) {
		t.Errorf("the victim has the processes %+v, %v", list, err)
	}
	checkTree(t, root.EROFS, ids)
}

// checkHostIDs looks at the processes of all sandboxes from outside. No process has the id or a group of the server's
// user, and no command has the agent's id.
func checkHostIDs(t *testing.T, ids *subid.IDs) {
	t.Helper()
	agent := ids.Users.First + subid.Apart(min(ids.Users.Size, ids.Groups.Size))
	agents, commands := 0, 0
	for end := time.Now().Add(10 * time.Second); commands == 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		agents, commands = 0, 0
		for pid, status := range descendants(t) {
			inRange := func(r subid.Range, text string) {
				for _, f := range strings.Fields(text) {
					if id, err := strconv.Atoi(f); err != nil || id < r.First || id >= r.First+r.Size {
						t.Errorf("process %d has the id %s outside: %q", pid, f, status)
					}
				}
			}
			inRange(ids.Users, status["Uid"])
			inRange(ids.Groups, status["Gid"])
			inRange(ids.Groups, status["Groups"])
			if strings.Contains(status["Uid"], fmt.Sprint(agent)) {
				agents++
			} else {
				commands++
			}
		}
	}
	if agents != 2 || commands == 0 {
		t.Errorf("%d agents and %d commands were found", agents, commands)
	}
}

// descendants returns the processes inside sandboxes of this process, with the fields of proc_pid_status(5).
func descendants(t *testing.T) map[int]map[string]string {
	t.Helper()
	found := map[int]map[string]string{}
	files, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil { // the process has ended
			continue
		}
		status := map[string]string{}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			status[name] = strings.TrimSpace(value)
		}
		all[status["Pid"]] = status
	}
	for pid, status := range all {
		own := false
		for p := status; p != nil && !own; p = all[p["PPid"]] {
			own = p["PPid"] == strconv.Itoa(os.Getpid())
		}
		if n, _ := strconv.Atoi(pid); own && len(strings.Fields(status["NSpid"])) > 1 {
			found[n] = status
		}
	}
	return found
}

// checkTree checks the unpacked image: its setuid programs are closed to all other users of the host, and it can be
// removed only with the help of the ids.
func checkTree(t *testing.T, path string, ids *subid.IDs) {
	t.Helper()
	tree := image.OwnedTreePath(path, ids)
	if info, err := os.Stat(tree); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v, %v", info, err)
	}
	if err := os.RemoveAll(tree); err == nil {
		t.Error("the server's user owns the files of the image")
	}
	if err := subid.RemoveAll(tree); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(tree); !os.IsNotExist(err) {
		t.Error("it is still there", err)
	}
}
