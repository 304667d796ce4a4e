// Package dockerd starts a Docker engine for a test, from the Debian package docker.io.
package dockerd

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"hutch/internal/hutchtest"
)

// Mirror is the address, in the engine's own network, from which an engine pulls the images of Docker Hub.
const Mirror = "127.0.0.1:5000"

// isolated mounts the proc file system and starts the loopback interface in new namespaces, and then replaces itself
// with another program.
const isolated = `mount --make-rprivate / && mount -t proc proc /proc && ip link set lo up && exec "$@"`

// runc is a runtime that calls runc with fewer capabilities. An engine gives privileged containers all capabilities,
// and runc fails if the machine itself, perhaps a container, lacks CAP_SYS_RESOURCE.
const runc = `#!/bin/sh
previous=
for arg; do
	case $previous in
	--bundle) file=$arg/config.json ;;
	--process) file=$arg ;;
	esac
	previous=$arg
done
[ -z "${file:-}" ] || setpriv --dump | grep -q sys_resource || sed -i 's/"CAP_SYS_RESOURCE",//g; s/,"CAP_SYS_RESOURCE"//g' "$file"
exec runc "$@"
`

// Engine is a Docker engine. An engine that [Start] started has its own process ids, mounts and network, and everything
// that it starts ends with it.
type Engine struct {
	Host string // value for DOCKER_HOST
	dir  string
	args []string // the program and its arguments
	pid  int
}

// Start starts an engine whose containers reach only each other. The test is skipped if Docker is not installed, or if
// it does not run as root.
func Start(t testing.TB) *Engine {
	t.Helper()
	e := begin(t)
	wrapper := filepath.Join(e.dir, "runc")
	if err := os.WriteFile(wrapper, []byte(runc), 0o755); err != nil {
		t.Fatal(err)
	}
	e.args = append(e.args, "--registry-mirror", "http://"+Mirror, "--add-runtime", "here="+wrapper, "--default-runtime", "here")
	cmd := exec.Command("sh", append([]string{"-c", isolated, "sh"}, e.args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID}
	return e.start(t, cmd)
}

// StartHere starts an engine as on a usual host: in the namespaces of the test. Its containers have no network.
func StartHere(t testing.TB) *Engine {
	t.Helper()
	e := begin(t)
	cmd := exec.Command(e.args[0], append(e.args[1:], "--bridge=none")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return e.start(t, cmd)
}

// begin prepares the command line of an engine.
func begin(t testing.TB) *Engine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start a Docker engine")
	}
	program, err := exec.LookPath("dockerd")
	if err != nil {
		hutchtest.Skip(t, "dockerd is missing (apt-get install docker.io)")
	}
	dir := hutchtest.Dir(t)
	e := &Engine{Host: "unix://" + filepath.Join(dir, "s"), dir: dir}
	e.args = []string{
		program, "-H", e.Host, "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
		"--pidfile", filepath.Join(dir, "pid"), "--iptables=false", "--ip6tables=false", "--ip-forward=false",
	}
	return e
}

// start starts the engine, and waits until it answers.
func (e *Engine) start(t testing.TB, cmd *exec.Cmd) *Engine {
	t.Helper()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the engine gets its death signal when the thread that started it ends
		defer runtime.UnlockOSThread()
		started <- cmd.Start()
		ended <- cmd.Wait()
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil || t.Failed() {
			t.Logf("dockerd ended with %v\n%s", err, log.Bytes())
		}
	})
	api := Client(t, e.Host)
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, err := api.Ping(t.Context(), client.PingOptions{})
		if err == nil {
			e.pid = cmd.Process.Pid
			return e
		}
		if time.Now().After(end) {
			t.Fatalf("dockerd does not answer: %v", err)
		}
	}
}

// Listen listens in the engine's network.
func (e *Engine) Listen(address string) (l net.Listener, err error) {
	return l, e.inside(func() error { l, err = net.Listen("tcp", address); return err })
}

// Dial connects to an address in the engine's network. The host must be an IP address.
func (e *Engine) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	return c, e.inside(func() error { c, err = new(net.Dialer).DialContext(ctx, network, address); return err })
}

// inside calls do in the engine's network. The sockets that do opens stay there. The thread then goes back to its own
// network and is used again, because the engine is killed when the thread that started it ends.
func (e *Engine) inside(do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close()
	theirs, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", e.pid))
	if err != nil {
		return err
	}
	defer theirs.Close()
	if err := unix.Setns(int(theirs.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	defer func() {
		if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(err) // otherwise the thread would open later sockets in the wrong network
		}
	}()
	return do()
}

// Client returns a client for an engine.
func Client(t testing.TB, host string) *client.Client {
	t.Helper()
	api, err := client.New(client.WithHost(host))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	return api
}

// Build builds an image as docker build does, from a context with the given files.
func Build(t testing.TB, host, tag string, files map[string][]byte) {
	t.Helper()
	var context bytes.Buffer
	w := tar.NewWriter(&context)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		w.Write(content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	res, err := Client(t, host).ImageBuild(t.Context(), &context, client.ImageBuildOptions{Tags: []string{tag}})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if out, err := io.ReadAll(res.Body); err != nil || strings.Contains(string(out), `"error"`) {
		t.Fatalf("docker build: %v\n%s", err, out)
	}
}
