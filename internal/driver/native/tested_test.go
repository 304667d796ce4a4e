package native

import (
	"context"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/wire"
)

// tested is an instance for one test.
type tested struct {
	*testing.T
	driver.Instance
	agent *wire.Client
}

// newInstance creates an instance as the pool does: under another name at first. That must make no difference.
func newInstance(t *testing.T, limits func(*hutch.Limits)) *tested {
	t.Helper()
	t.Parallel()
	s := spec(root(t), "test")
	s.Boot.Hostname = "spare"
	s.Limits.Memory, s.Limits.Disk, s.Limits.PIDs, s.Limits.CPU = 1024, 512, 256, 2
	if limits != nil {
		limits(&s.Limits)
	}
	i, err := newDriver(t, t.TempDir()).Create(t.Context(), s)
	if err != nil {
		t.Fatal(err, hutch.AsError(err).Cause)
	}
	agent := wire.NewClient(i.Dial, token)
	t.Cleanup(func() {
		agent.Close()
		if err := i.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := i.(driver.Renamer).Rename("test"); err != nil {
		t.Fatal(err)
	}
	return &tested{t, i, agent}
}

// run runs a bash command, and returns its output and its exit.
func (p *tested) run(command string) (string, wire.Exit) {
	p.Helper()
	var out strings.Builder
	s := wire.Start{ID: hutch.NewID("x"), Command: command, TimeoutMS: (2 * time.Minute).Milliseconds()}
	exit, err := p.agent.Run(p.Context(), s, nil, func(o hutch.Output) error {
		out.Write(o.Data)
		return nil
	})
	if err != nil {
		p.Fatalf("%s: %v", command, err)
	}
	return strings.TrimSuffix(out.String(), "\n"), exit
}

func (p *tested) want(command, output string) {
	p.Helper()
	if out, exit := p.run(command); out != output || exit.Code != 0 {
		p.Errorf("%s\ngave %q and exit code %d, not %q", command, out, exit.Code, output)
	}
}

// These programs could fail because of the filter or of missing parts of the system.
func TestProgramsWork(t *testing.T) {
	for name, c := range map[string]struct{ program, command, output string }{
		"python": {"python3", `python3 - <<'E'
import multiprocessing, os, socket, subprocess, tempfile, threading
with multiprocessing.Pool(2) as pool: print(sum(pool.map(abs, range(-4, 0))))
s = socket.create_server(("127.0.0.1", 0))
t = threading.Thread(target=lambda: s.accept()[0].sendall(b"over loopback")); t.start()
print(socket.create_connection(s.getsockname()).recv(99).decode())
print(subprocess.run(["uname", "-s"], capture_output=True, text=True).stdout.strip(), os.cpu_count() > 0)
E`, "10\nover loopback\nLinux True"},
		"node": {"node", `node -e '
const { Worker } = require("worker_threads"), http = require("http"), os = require("os");
new Worker("require(\"worker_threads\").parentPort.postMessage(6*7)", { eval: true }).on("message", n => {
  const s = http.createServer((q, r) => r.end("served " + n)).listen(0, "127.0.0.1", () =>
    fetch("http://127.0.0.1:" + s.address().port).then(r => r.text()).then(t => { console.log(t, os.cpus().length > 0, "lo" in os.networkInterfaces()); process.exit(0) }));
});'`, "served 42 true true"},
		"java": {"java", `cd /tmp && echo 'class A { public static void main(String[] a) throws Exception {
Thread t = new Thread(() -> System.out.println("thread")); t.start(); t.join();
System.out.println(new ProcessBuilder("uname").start().waitFor()); } }' > A.java && java -Xshare:auto A.java`, "thread\n0"},
		"gcc": {"gcc", `cd /tmp && echo 'int puts(const char*); int main(){puts("compiled");}' > a.c && gcc -pipe a.c -o a && ./a`, "compiled"},
		"go": {"go", `mkdir /tmp/g && cd /tmp/g && echo 'package main
func main() { println("built") }' > main.go && go run main.go`, "built"},
		"git": {"git", `mkdir /tmp/r && cd /tmp/r && git init -q . && echo x > x && git add x &&
git -c user.name=a -c user.email=a@b commit -qm first && git log --format=%s && git clone -q . ../c && cat ../c/x`, "first\nx"},
		"perl":  {"perl", `perl -e 'my $pid = fork // die; if (!$pid) { exit 3 } wait; print $? >> 8'`, "3"},
		"rustc": {"rustc", `cd /tmp && echo 'fn main() { println!("rusted") }' > a.rs && rustc a.rs && ./a`, "rusted"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, ok := root(t).LookPath(c.program); !ok {
				t.Skipf("this host has no %s", c.program)
			}
			newInstance(t, nil).want(c.command, c.output)
		})
	}
}
