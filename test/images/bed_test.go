// Package images runs sandboxes whose root file systems are images. One image is a Debian, made of this machine's
// packages and pulled from a registry in this process; another one has a single static program.
package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/debian"
	"hutch/internal/hutchtest/musl"
	"hutch/internal/hutchtest/server"
	"hutch/internal/hutchtest/testimage"
)

func TestMain(m *testing.M) {
	hutchtest.Main(m, func() { os.RemoveAll(debianStore.dir) })
}

// python is the tests' python:3.12-slim: a Debian with Python.
const python = "python:3.12-slim"

// serveRegistry starts a registry that has all images of the tests, and returns its address.
var serveRegistry = sync.OnceValues(func() (string, error) {
	srv := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0))))
	at := strings.TrimPrefix(srv.URL, "http://")
	return at, errors.Join(
		publish(at, "library/"+python, v1.Config{Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "COLOUR=red"}, Cmd: []string{"python3"}}, debian.Write),
		publish(at, "library/hello:1", v1.Config{User: "7000:7001", WorkingDir: "/data", Entrypoint: []string{"/program"}}, static(hello)),
		publish(at, "library/shout:1", v1.Config{Entrypoint: []string{"/program", "it's"}, Labels: map[string]string{"sandbox.runner": "true", "sandbox.language": "Shout"}}, static(shout)),
		publish(at, "library/site:1", v1.Config{
			User: "7000:7001", WorkingDir: "/data", Entrypoint: []string{"/program"}, StopSignal: "SIGQUIT", ExposedPorts: map[string]struct{}{"8080/tcp": {}, "53/udp": {}},
			Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/program", "check"}, Interval: 100 * time.Millisecond, Timeout: time.Minute, StartPeriod: time.Minute, Retries: 1},
		}, static(site)),
		publish(at, "library/mute:1", v1.Config{Labels: map[string]string{"sandbox.runner": "true", "sandbox.language": "mute"}}, static(hello)),
	)
})

// publishMusl adds the image without glibc to the registry.
var publishMusl = sync.OnceValue(func() error {
	at, err := serveRegistry()
	if err != nil {
		return err
	}
	return publish(at, "library/"+muslImage, v1.Config{User: "app"}, musl.Write)
})

// publish pushes an image with one layer into the registry.
func publish(at, as string, c v1.Config, write func(*tar.Writer) error) error {
	file, err := os.CreateTemp("", "hutch-layer-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	w := tar.NewWriter(file)
	if err := errors.Join(write(w), w.Close()); err != nil {
		return err
	}
	layer, err := tarball.LayerFromFile(file.Name(), tarball.WithCompressionLevel(gzip.NoCompression))
	if err != nil {
		return err
	}
	img, err := testimage.Image(c, layer)
	if err != nil {
		return err
	}
	return testimage.Push(at, as, img)
}

// static writes one program without any library, /program, and nothing else.
func static(text string) func(*tar.Writer) error {
	return func(w *tar.Writer) error { return writeProgram(w, text) }
}

func writeProgram(w *tar.Writer, text string) error {
	dir, err := os.MkdirTemp("", "hutch-static-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	source, program := filepath.Join(dir, "program.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-o", program, source)
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	b, err := os.ReadFile(program)
	if err == nil {
		err = w.WriteHeader(&tar.Header{Name: "program", Mode: 0o755, Size: int64(len(b))})
	}
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// hello prints its user, its group and its folder.
const hello = `package main

import ("fmt"; "os")

func main() {
	wd, _ := os.Getwd()
	fmt.Println("hello", os.Getuid(), os.Getgid(), wd, len(os.Args))
}
`

// site is a server on port 8080. With an argument, it only checks the health of that server. On SIGQUIT, it writes a
// file.
const site = `package main

import ("fmt"; "net/http"; "os"; "os/signal"; "syscall")

func main() {
	if len(os.Args) > 1 {
		res, err := http.Get("http://127.0.0.1:8080/")
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("it says", res.StatusCode)
		return
	}
	quit := make(chan os.Signal, 1)
	signal.Notify(quit, syscall.SIGQUIT)
	go http.ListenAndServe("127.0.0.1:8080", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }))
	fmt.Println("up")
	<-quit
	os.WriteFile("/data/word", []byte("quit"), 0o644)
}
`

// shout is a runner. It prints its source in capitals with its user, folder and arguments, and appends the source to a
// file.
const shout = `package main

import ("bytes"; "fmt"; "io"; "os")

func main() {
	source, _ := io.ReadAll(os.Stdin)
	wd, _ := os.Getwd()
	fmt.Println(string(bytes.ToUpper(source)), os.Getuid(), wd, os.Args[1:])
	f, err := os.OpenFile("all", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	defer f.Close()
	f.Write(append(source, '\n'))
}
`

// bed is a server, and a client that is its administrator.
type bed struct {
	*server.Process
	dir, data, runtime string
	flags              []string // more flags of `hutch serve`
}

// newBed starts a server with one runtime and no images. docker.io is the registry of the tests.
func newBed(t testing.TB, runtime string) *bed {
	t.Helper()
	b := prepare(t, runtime)
	b.start(t)
	return b
}

// newDebian starts a server that has the Debian. The first server pulls it and makes its root file system, which takes
// long; the stores of the later servers begin with links to its files.
func newDebian(t *testing.T, runtime string) *bed {
	t.Helper()
	b := prepare(t, runtime)
	store := filepath.Join(b.data, datadir.OCI)
	debianStore.Lock()
	defer debianStore.Unlock()
	if debianStore.dir != "" {
		linkStore(t, debianStore.dir, store)
		b.start(t)
		return b
	}
	b.start(t)
	sb := b.make(t, python)
	if _, err := b.Destroy(t.Context(), sb.ID, true); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "hutch-store-")
	if err != nil {
		t.Fatal(err)
	}
	debianStore.dir = dir
	linkStore(t, store, dir)
	return b
}

// debianStore is a store of images that has the Debian.
var debianStore struct {
	sync.Mutex
	dir string
}

// linkStore makes a store of the files of another. A store never changes a file, it only puts another in its place.
func linkStore(t *testing.T, from, to string) {
	t.Helper()
	for _, dir := range []string{"blobs/sha256", "records", "roots"} {
		if err := os.MkdirAll(filepath.Join(to, dir), 0o711); err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(filepath.Join(from, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if f.IsDir() { // an unpacked image, which is made again where it is needed
				continue
			}
			if err := os.Link(filepath.Join(from, dir, f.Name()), filepath.Join(to, dir, f.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// prepare describes a server, but does not start it. Once it is started, it ends with the test.
func prepare(t testing.TB, runtime string) *bed {
	t.Helper()
	for _, program := range []string{"dpkg", "apt-cache", "go"} {
		if _, err := exec.LookPath(program); err != nil {
			hutchtest.Skip(t, "%s is missing", program)
		}
	}
	at, err := serveRegistry()
	if err != nil {
		t.Fatal(err)
	}
	hutchtest.Driver(t, runtime, hutchtest.Dir(t)) // skips the test where the runtime does not work
	dir := hutchtest.Dir(t)
	b := &bed{dir: dir, data: filepath.Join(dir, "data"), runtime: runtime, flags: []string{"--runtime", runtime,
		"--registry-mirror", "docker.io=http://" + at, "--registry-private", at, "--registry-insecure", at}}
	t.Cleanup(func() {
		if b.Process != nil {
			b.EndEmpty(t)
		}
	})
	return b
}

// start starts the server, or starts it again after it has ended.
func (b *bed) start(t testing.TB) {
	t.Helper()
	b.Process = server.Run(t, server.Options{Data: b.data, Flags: append([]string{"--pool", "0"}, b.flags...)})
}

// make creates a sandbox with an image.
func (b *bed) make(t testing.TB, image string) hutch.Sandbox {
	t.Helper()
	sb, err := b.Create(t.Context(), hutch.CreateRequest{Image: image, Limits: hutch.Limits{Memory: 512, Disk: 128}})
	if err != nil {
		t.Fatalf("create with %s: %v", image, err)
	}
	return sb
}

// run runs a command and returns what it printed; it must succeed.
func (b *bed) run(t *testing.T, id, command string) string {
	t.Helper()
	res, err := b.Exec(t.Context(), id, hutch.ExecRequest{Command: command}, nil)
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%s: exit code %d, %v\n%s%s", command, res.ExitCode, err, res.Stdout, res.Stderr)
	}
	return string(bytes.TrimSpace([]byte(res.Stdout)))
}

func each(t *testing.T, test func(t *testing.T, b *bed)) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			test(t, newDebian(t, runtime))
		})
	}
}
