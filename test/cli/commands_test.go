package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	vocabulary "hutch"
	"hutch/client"
	"hutch/internal/hutchtest"
	"hutch/internal/linux/cgroup"
)

// patience is how long anything may take on a busy machine.
const patience = 60 * time.Second

// exits runs a command that must end with an exit code:
//
//	exits 3 hutch run 'exit 3'
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, not %d", got, want)
	}
}

// eventually runs a command until it succeeds.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	until(ts, func() error { return ts.Exec(args[0], args[1:]...) })
}

func until(ts *testscript.TestScript, f func() error) {
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("still: %v", err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// signal runs a command, waits for a text in its output, sends it a signal,
// and checks how it ends: by exit code, or as "killed".
//
//	signal INT 130 ready hutch run 'echo ready; sleep 1000'
func signal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: signal NAME CODE TEXT COMMAND...")
	}
	cmd := command(ts, args[3], args[4:]...)
	out := &hutchtest.Buffer{}
	cmd.Stdout, cmd.Stderr = out, ts.Stderr()
	ts.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	until(ts, func() error {
		if out.Holds(args[2]) {
			return nil
		}
		return fmt.Errorf("%q is not in the output", args[2])
	})
	ts.Check(cmd.Process.Signal(unix.SignalNum("SIG" + args[0])))
	select {
	case <-ended:
	case <-time.After(patience):
		cmd.Process.Kill()
		ts.Fatalf("it continues after the signal")
	}
	got := strconv.Itoa(cmd.ProcessState.ExitCode())
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		got = "killed"
	}
	if got != args[1] {
		ts.Fatalf("it ended with %s, not %s", got, args[1])
	}
}

// command returns a command as `exec` would run it.
func command(ts *testscript.TestScript, name string, args ...string) *exec.Cmd {
	path, err := exec.LookPath(name)
	ts.Check(err)
	cmd := exec.Command(path, args...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = environ(ts)
	return cmd
}

// environ returns those environment variables of the script that matter.
func environ(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "HUTCH_DATA", "HUTCH_URL", "HUTCH_TOKEN", "SANDBOX_AUTH_TOKEN", "XDG_CONFIG_HOME", "ANTHROPIC_API_KEY", varProgram, varUser, varPath} {
		if v := ts.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// daemon is the server of a script.
type daemon struct {
	cmd  *exec.Cmd
	said *hutchtest.Buffer
}

type serverKey struct{}

// server starts a server on a free port and does what a person does with its output: it sets HUTCH_URL and
// HUTCH_TOKEN, and writes the command line to paste into try.sh.
func server(ts *testscript.TestScript, neg bool, args []string) {
	d := ts.Value(serverKey{}).(*daemon)
	if neg || d.cmd != nil {
		ts.Fatalf("one server at a time")
	}
	d.said = &hutchtest.Buffer{}
	d.cmd = command(ts, "hutch", append([]string{"serve", "--listen", "127.0.0.1:0", "--cold-compilers"}, args...)...)
	d.cmd.Stdout, d.cmd.Stderr = d.said, d.said
	ts.Check(d.cmd.Start())
	until(ts, func() error { return d.announced(ts) })
}

// announced reads the announcement, which is written at once.
func (d *daemon) announced(ts *testscript.TestScript) error {
	text, try, there := strings.Cut(d.said.String(), "paste this into another terminal:\n\n")
	if !there {
		return fmt.Errorf("the server has not said that it is ready: %s", text)
	}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			value, _, _ = strings.Cut(strings.TrimSpace(value), " ")
			switch name {
			case "URL":
				ts.Setenv("HUTCH_URL", value)
			case "token":
				ts.Setenv("HUTCH_TOKEN", tokenOf(ts, value))
			}
		}
	}
	return os.WriteFile(ts.MkAbs("try.sh"), []byte(try), 0o644)
}

// tokenOf returns the token that an announcement names: the first start prints the token itself, later ones a file or a
// variable.
func tokenOf(ts *testscript.TestScript, where string) string {
	switch {
	case strings.HasPrefix(where, "$"):
		return ts.Getenv(where[1:])
	case strings.HasPrefix(where, "/"):
		return strings.TrimSpace(ts.ReadFile(where))
	}
	return where
}

// end ends the server as Ctrl-C does. The name stop is taken: testscript's own command stop ends the test.
func end(ts *testscript.TestScript, neg bool, _ []string) {
	d := ts.Value(serverKey{}).(*daemon)
	ts.Check(d.cmd.Process.Signal(os.Interrupt))
	if err := d.cmd.Wait(); err != nil {
		ts.Fatalf("the server ended with %v", err)
	}
	d.cmd = nil
}

// endByDown ends the server by `hutch down`.
func endByDown(ts *testscript.TestScript, neg bool, _ []string) {
	d := ts.Value(serverKey{}).(*daemon)
	ended := make(chan error, 1)
	go func() { ended <- d.cmd.Wait() }() // so that no zombie is found later
	ts.Check(ts.Exec("hutch", "down"))
	if err := <-ended; err != nil {
		ts.Fatalf("the server ended with %v", err)
	}
	d.cmd = nil
}

// nothing is like awaitUnused, and also expects that no control group is left.
func nothing(ts *testscript.TestScript, neg bool, args []string) {
	awaitUnused(ts, neg, args)
	for _, runtime := range hutchtest.Runtimes {
		if left := hutchtest.Groups(filepath.Join(ts.Getenv("HUTCH_DATA"), "server", runtime)); len(left) > 0 {
			ts.Fatalf("control groups are left: %q", left)
		}
	}
}

// crash kills the server.
func crash(ts *testscript.TestScript, neg bool, _ []string) {
	d := ts.Value(serverKey{}).(*daemon)
	ts.Check(d.cmd.Process.Kill())
	d.cmd.Wait()
	d.cmd = nil
}

// awaitUnused waits until no process uses the data folder, and no engine's folder is left. In scripts it is called
// alone, and expects the opposite after an exclamation mark.
func awaitUnused(ts *testscript.TestScript, neg bool, _ []string) {
	data := ts.Getenv("HUTCH_DATA")
	if neg {
		if left := leftovers(data); left == nil {
			ts.Fatalf("nothing is there")
		}
		return
	}
	until(ts, func() error { return leftovers(data) })
}

// leftovers lists the files of sandboxes that remain in a data folder.
func leftovers(data string) error {
	for _, pid := range holders(data) {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return fmt.Errorf("process %d is left: %q", pid, bytes.Split(cmdline, []byte{0}))
	}
	dirs, _ := os.ReadDir(filepath.Join(data, "embedded"))
	for _, d := range dirs {
		return fmt.Errorf("the folder %s is left", d.Name())
	}
	return nil
}

// holders returns the processes that name a folder: on their command line, in their environment, in mounts that the
// host does not have, or in the address of a socket. The agent of a native sandbox names its folder only in that
// address.
func holders(dir string) []int {
	name := []byte(filepath.Base(dir))
	host, _ := os.Readlink("/proc/self/ns/mnt")
	sockets := socketsIn(name)
	procs, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, proc := range procs {
		files := []string{"cmdline", "environ"}
		if ns, err := os.Readlink(filepath.Join(proc, "ns/mnt")); err == nil && ns != host {
			files = append(files, "mountinfo")
		}
		pid, _ := strconv.Atoi(filepath.Base(proc))
		if pid == os.Getpid() {
			continue
		}
		if holdsSocket(proc, sockets) || slices.ContainsFunc(files, func(file string) bool {
			b, _ := os.ReadFile(filepath.Join(proc, file))
			return bytes.Contains(b, name)
		}) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// socketsIn returns the Unix sockets whose address contains a name, in the form of the links in /proc/PID/fd.
func socketsIn(name []byte) map[string]bool {
	table, _ := os.ReadFile("/proc/net/unix")
	sockets := map[string]bool{}
	for line := range bytes.Lines(table) {
		if fields := bytes.Fields(line); len(fields) == 8 && bytes.Contains(fields[7], name) {
			sockets[fmt.Sprintf("socket:[%s]", fields[6])] = true
		}
	}
	return sockets
}

func holdsSocket(proc string, sockets map[string]bool) bool {
	if len(sockets) == 0 {
		return false
	}
	files, _ := os.ReadDir(filepath.Join(proc, "fd"))
	return slices.ContainsFunc(files, func(f os.DirEntry) bool {
		to, _ := os.Readlink(filepath.Join(proc, "fd", f.Name()))
		return sockets[to]
	})
}

// clean removes the leftovers of a failed script.
func clean(env *testscript.Env) {
	d := env.Values[serverKey{}].(*daemon)
	if d.cmd != nil {
		d.cmd.Process.Kill()
		d.cmd.Wait()
	}
	if d.said != nil {
		env.T().Log("the server said: ", d.said.String())
	}
	killHolders(env.Getenv("HUTCH_DATA"))
	if err := ungroup(env.Getenv("HUTCH_DATA")); err != nil {
		env.T().Log("remove control groups: ", err)
	}
}

// killHolders kills all processes that name a folder, until it finds none twice in a row: a process that a killed
// server was starting can start more processes in between.
func killHolders(dir string) {
	for looks := 0; looks < 2; time.Sleep(100 * time.Millisecond) {
		pids := holders(dir)
		for _, pid := range pids {
			if p, err := os.FindProcess(pid); err == nil {
				p.Kill()
			}
		}
		if looks++; len(pids) > 0 {
			looks = 0
		}
	}
}

// ungroup removes the control groups of sandboxes that a server left to its next start, and kills everything in them.
func ungroup(data string) error {
	tree, err := cgroup.Find()
	if err != nil {
		return nil // no control groups here
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var errs error
	for _, runtime := range hutchtest.Runtimes {
		for _, path := range hutchtest.Groups(filepath.Join(data, "server", runtime)) {
			g := tree.Open(filepath.Base(path))
			errs = errors.Join(errs, g.Kill(), g.Remove(ctx))
		}
	}
	return errs
}

type spyKey struct{}

// eavesdrop sets HUTCH_URL to a program that is not Hutch, and records the tokens that this program receives.
func eavesdrop(ts *testscript.TestScript, neg bool, _ []string) {
	spy := ts.Value(spyKey{}).(*hutchtest.Buffer)
	l := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(spy, r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusTeapot)
	}))
	ts.Defer(l.Close)
	ts.Setenv("HUTCH_URL", l.URL)
}

// checkHeard compares what the eavesdropper received with the arguments: nothing, or a header.
func checkHeard(ts *testscript.TestScript, neg bool, args []string) {
	got := strings.TrimSpace(ts.Value(spyKey{}).(*hutchtest.Buffer).String())
	if want := strings.Join(args, " "); got != want && (want != "nothing" || got != "") {
		ts.Fatalf("it heard %q", got)
	}
}

// background starts a background process in a sandbox, as a program would:
//
//	exec background SANDBOX COMMAND
func background() {
	c := client.New(os.Getenv("HUTCH_URL"), os.Getenv("HUTCH_TOKEN"))
	p, err := c.StartProcess(context.Background(), os.Args[1], vocabulary.ProcessRequest{Command: os.Args[2], Name: "test"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(p.ID, p.Status)
}
