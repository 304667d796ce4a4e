package escape

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/egress"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/linux/tun"
	"hutch/internal/store"
)

// field is the target of attacks: a runtime's sandboxes, and a host with secrets.
type field struct {
	runtime string
	svc     hutch.Service
	records *store.Store
	dir     string // the folder of the engine
	begin   string // the snapshot that sandboxes start from, if any
	bait    *bait
}

func newField(t *testing.T, runtime string) *field {
	t.Helper()
	records, err := store.Open(t.Context(), store.Memory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	f := &field{runtime: runtime, records: records}
	f.bait = newBait(t)
	f.svc = hutchtest.Engine(t, runtime, func(o *engine.Options) {
		o.Store, f.dir = records, o.Dir
		o.MaxSandboxes = 200
		o.Gateway = func(x engine.Exit) (engine.Gateway, error) {
			return egress.New(x.Network, egress.Options{Sandbox: x.Sandbox, Names: []netip.Addr{tun.Gateway4, tun.Gateway6}})
		}
	})
	return f
}

// startNeighbour starts the neighbour's sandbox, which runs during all attacks.
func (f *field) startNeighbour(t *testing.T) {
	t.Helper()
	id := f.sandbox(t, hutch.CreateRequest{ID: "neighbour"})
	f.start(t, id, hutch.ExecRequest{
		Language: "python", Command: program(t, "neighbour"), Env: map[string]string{"BE": "1"}, Timeout: 3600,
	}, "ready")
}

// start runs a command until the end of the test, and returns when it has printed word.
func (f *field) start(t *testing.T, id string, req hutch.ExecRequest, word string) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	said, ended := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	go func() {
		r, err := f.svc.Exec(ctx, id, req, func(o hutch.Output) error {
			if strings.Contains(string(o.Data), word) {
				once.Do(func() { close(said) })
			}
			return nil
		})
		ended <- fmt.Errorf("exit code %d, %w: %s%s", r.ExitCode, err, r.Stdout, r.Stderr)
	}()
	t.Cleanup(func() {
		leave()
		<-ended
	})
	select {
	case <-said:
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatalf("%.60q never says %q", req.Command, word)
	}
}

// sandbox creates a sandbox that is destroyed at the end of the test.
func (f *field) sandbox(t *testing.T, req hutch.CreateRequest) string {
	t.Helper()
	req.Snapshot = f.begin
	s, err := f.svc.Create(t.Context(), req)
	if err != nil {
		t.Fatalf("create a sandbox: %v", err)
	}
	t.Cleanup(func() {
		if _, err := f.svc.Destroy(context.Background(), s.ID, true); err != nil {
			t.Errorf("destroy the sandbox: %v", err)
		}
	})
	return s.ID
}

// run runs a command that must have a result.
func (f *field) run(t *testing.T, id string, req hutch.ExecRequest) hutch.ExecResult {
	t.Helper()
	if req.Timeout == 0 {
		req.Timeout = hutch.InSeconds(patience)
	}
	r, err := f.svc.Exec(t.Context(), id, req, nil)
	if err != nil {
		t.Fatalf("%.60q: %v", req.Command, err)
	}
	return r
}

// sh runs a command line that must succeed, and returns what it prints.
func (f *field) sh(t *testing.T, id, command string) string {
	t.Helper()
	r := f.run(t, id, hutch.ExecRequest{Command: command})
	if !r.Success() {
		t.Fatalf("%s: exit code %d, timed out: %v\n%s%s", command, r.ExitCode, r.TimedOut, r.Stdout, r.Stderr)
	}
	return string(r.Stdout)
}

// checkWorks checks that a sandbox works.
func (f *field) checkWorks(t *testing.T, id string) {
	t.Helper()
	if out := f.sh(t, id, "echo well | tr a-z A-Z"); out != "WELL\n" {
		t.Errorf("sandbox %s after the attack: %q", id, out)
	}
}

// env returns the environment variables of an attack in the sandbox: what it is allowed to know.
func (f *field) env(t *testing.T, id string) map[string]string {
	t.Helper()
	p := f.bait
	return map[string]string{
		"TOKEN": backwards(f.token(t, id)), "CANARY": backwards(p.canary), "ABSTRACT": backwards(p.abstract),
		"SOCKET": backwards(p.socket), "PLANTED": backwards(strings.Join(p.planted, "\n")), "STATE": backwards(f.dir),
		"PORT": strconv.Itoa(p.port), "ADDRESSES": strings.Join(p.addresses, " "),
		"DISK": strconv.FormatUint(p.disk, 10), "IMAGE": backwards(filepath.Dir(hutchtest.Image(t).Dir)), "BOOT": backwards(p.boot),
		"HOST_PID": strconv.Itoa(p.process.Process.Pid), "IPC_KEY": strconv.Itoa(p.key),
	}
}

// token returns the token of the daemon and the agent.
func (f *field) token(t *testing.T, id string) string {
	t.Helper()
	all, err := f.records.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(r store.Record) bool { return r.Sandbox.ID == id })
	if i < 0 || len(all[i].Token) < 16 {
		t.Fatalf("no token is known for %s", id)
	}
	return all[i].Token
}

func backwards(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

// privilege says what kind of daemon this is.
func privilege() string {
	if os.Geteuid() == 0 {
		return "root"
	}
	return "rootless"
}

// bait is what an attacker could find or change on the host.
type bait struct {
	canary   string // part of the name and content of everything
	planted  []string
	abstract string
	socket   string
	process  *exec.Cmd

	port      int
	addresses []string
	key       int // of System V's ipc
	calls     atomic.Int32
	programs  map[string]string // checksums
	disk      uint64            // size of the file system that has them
	boot      string            // the machine's boot id
}

func newBait(t *testing.T) *bait {
	t.Helper()
	p := &bait{canary: hutch.NewID("canary"), programs: checksums(t)}
	p.plant(t)
	p.listen(t)
	p.share(t)
	p.use(t)
	p.process = exec.Command("sleep", "600")
	p.process.Args[0] = p.canary
	if err := p.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.process.Process.Kill()
		p.process.Wait()
	})
	// The daemon is this process: its environment has a secret.
	if err := os.Setenv("SECRET_"+strings.ToUpper(strings.ReplaceAll(p.canary, "-", "_")), p.canary); err != nil {
		t.Fatal(err)
	}
	return p
}

// plant puts secrets wherever this user can write.
func (p *bait) plant(t *testing.T) {
	t.Helper()
	home, _ := os.UserHomeDir()
	for _, dir := range []string{home, "/root", "/home", "/tmp", "/var/tmp", "/var/lib", "/run", "/etc", "/opt", "/srv", "/mnt", "/dev/shm", "/"} {
		path := filepath.Join(dir, p.canary)
		if os.WriteFile(path, []byte(p.canary), 0o644) != nil || slices.Contains(p.planted, path) {
			continue
		}
		p.planted = append(p.planted, path)
		t.Cleanup(func() { os.Remove(path) })
	}
	if len(p.planted) == 0 {
		t.Fatal("no secret could be planted")
	}
}

// listen opens sockets that no program inside may reach.
func (p *bait) listen(t *testing.T) {
	t.Helper()
	p.abstract = p.canary
	p.socket = filepath.Join("/tmp", p.canary+".sock")
	lns := []net.Listener{listenOn(t, "unix", "@"+p.abstract), listenOn(t, "unix", p.socket), listenOn(t, "tcp", ":0")}
	p.port = lns[2].Addr().(*net.TCPAddr).Port
	for _, ln := range lns {
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				p.calls.Add(1)
				c.Close()
			}
		}()
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if ip := a.(*net.IPNet).IP; ip.To4() != nil && !ip.IsLoopback() {
			p.addresses = append(p.addresses, ip.String())
		}
	}
}

// use opens files that every sandbox can see, over and over, and holds a lock on one.
func (p *bait) use(t *testing.T) {
	t.Helper()
	const program = "/usr/bin/env"
	var st unix.Statfs_t
	if err := unix.Statfs(program, &st); err != nil {
		t.Fatal(err)
	}
	p.disk = st.Blocks * uint64(st.Frsize)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	p.boot = strings.TrimSpace(string(boot))
	held, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(held.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			for _, path := range []string{program, os.DevNull} {
				if f, err := os.Open(path); err == nil {
					f.Read(make([]byte, 1))
					f.Close()
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped; held.Close() })
}

func listenOn(t *testing.T, network, address string) net.Listener {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// share creates System V memory, a semaphore and a queue that any user can use.
func (p *bait) share(t *testing.T) {
	t.Helper()
	sum := sha256.Sum256([]byte(p.canary))
	p.key = int(sum[0])<<16 | int(sum[1])<<8 | int(sum[2])<<1 | 1
	id, err := unix.SysvShmGet(p.key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
}

// check checks that everything is unchanged.
func (p *bait) check(t *testing.T) {
	t.Helper()
	if n := p.calls.Load(); n > 0 {
		t.Errorf("the host's sockets were called %d times", n)
	}
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.process.Process.Pid))
	if err != nil || !strings.Contains(string(state), ") S ") {
		t.Errorf("the host's process is gone or stopped: %s, %v", state, err)
	}
	for _, path := range p.planted {
		if b, err := os.ReadFile(path); err != nil || string(b) != p.canary {
			t.Errorf("%s now holds %q, %v", path, b, err)
		}
	}
	for path, sum := range checksums(t) {
		if p.programs[path] != sum {
			t.Errorf("%s has changed", path)
		}
	}
}

func checksums(t *testing.T) map[string]string {
	t.Helper()
	sums := map[string]string{}
	for _, path := range []string{
		hutchtest.Program(t, "hutch-agent"), hutchtest.Program(t, "hutch-runsc"), hutchtest.Program(t, "hutch-gofer"), "/usr/bin/env", "/bin/sh", "/etc/passwd",
	} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b)
		sums[path] = hex.EncodeToString(sum[:])
	}
	return sums
}
