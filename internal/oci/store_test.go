package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	fakeregistry "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"hutch"
	"hutch/internal/hutchtest/disk"
	"hutch/internal/hutchtest/testimage"
)

// world is a registry in this process, and a store.
type world struct {
	t      *testing.T
	host   string // of the registry
	dir    string
	store  *Store
	before func(w http.ResponseWriter, r *http.Request) bool // reports whether it has answered
	mu     sync.Mutex
	asked  map[string]int // requests by method and kind of path
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), asked: map[string]int{}}
	backend := fakeregistry.New(fakeregistry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		before := w.before
		for _, kind := range []string{"/blobs/", "/manifests/"} {
			if strings.Contains(r.URL.Path, kind) {
				w.asked[r.Method+kind]++
			}
		}
		w.mu.Unlock()
		if before == nil || !before(answer, r) {
			backend.ServeHTTP(answer, r)
		}
	}))
	t.Cleanup(server.Close)
	w.host = strings.TrimPrefix(server.URL, "http://")
	w.open(Options{})
	return w
}

// open opens the store again, like a server that starts after it was killed.
func (w *world) open(o Options) {
	w.t.Helper()
	if w.store != nil {
		w.store.Close()
	}
	if o.Registries == nil {
		o.Registries = map[string]Registry{w.host: {Private: true, Insecure: true}}
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 5 * time.Second
	}
	s, err := Open(w.dir, o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.store = s
	w.t.Cleanup(func() { s.Close() })
}

func (w *world) on(before func(http.ResponseWriter, *http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
}

func (w *world) count(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[what]
}

func (w *world) ref(text string) Reference {
	w.t.Helper()
	r, err := ParseReference(w.host + "/" + text)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// push puts an image into the registry.
func (w *world) push(text string, image v1.Image) {
	w.t.Helper()
	at, err := name.NewTag(w.host+"/"+text, name.Insecure)
	if err == nil {
		err = remote.Write(at, image)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) pull(text string, o PullOptions) (Image, error) {
	w.t.Helper()
	return w.store.Pull(context.Background(), w.ref(text), o)
}

// files are the files below the store, without its mark.
func (w *world) files(dirs ...string) (list []string) {
	for _, dir := range dirs {
		entries, _ := os.ReadDir(filepath.Join(w.dir, dir))
		for _, e := range entries {
			list = append(list, filepath.Join(dir, e.Name()))
		}
	}
	return list
}

// layerOf makes a layer of files: names and contents in turns.
func layerOf(t testing.TB, files ...string) v1.Layer {
	t.Helper()
	l, err := testimage.Layer(files...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// noise is content that does not compress.
func noise(n int, seed string) string {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		sum := sha256.Sum256([]byte(seed + strconv.Itoa(i)))
		b.Write(sum[:])
	}
	return b.String()[:n]
}

func imageOf(t testing.TB, layers ...v1.Layer) v1.Image {
	t.Helper()
	image, err := testimage.Image(v1.Config{Env: []string{"A=b"}, WorkingDir: "/w", User: "web", Entrypoint: []string{"/e"}, Cmd: []string{"c"}, Labels: map[string]string{"l": "m"},
		ExposedPorts: map[string]struct{}{"80/tcp": {}}, StopSignal: "SIGQUIT", Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "x"}, Interval: time.Second}}, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func plainImage(t testing.TB) v1.Image {
	return imageOf(t, layerOf(t, "etc/passwd", "web:x:33:33::/srv:/bin/sh\n"), layerOf(t, "bin/x", noise(1<<20, "x")))
}

func TestReferences(t *testing.T) {
	hex := strings.Repeat("0f", 32)
	for text, want := range map[string]string{
		"":                              "host",
		"host":                          "host",
		"python":                        "docker.io/library/python:latest",
		"python:3.12-slim":              "docker.io/library/python:3.12-slim",
		"index.docker.io/a/b":           "docker.io/a/b:latest",
		"ghcr.io/x/y@sha256:" + hex:     "ghcr.io/x/y@sha256:" + hex,
		"ghcr.io/x/y:1@sha256:" + hex:   "ghcr.io/x/y:1@sha256:" + hex,
		"localhost:5000/x":              "localhost:5000/x:latest",
		"localhost/web":                 "localhost/web:latest",
		"sha256:" + hex:                 "sha256:" + hex,
		"registry.example:5000/a/b/c:1": "registry.example:5000/a/b/c:1",
	} {
		r, err := ParseReference(text)
		if err != nil || r.String() != want {
			t.Errorf("%q: %s, %v; want %s", text, r, err, want)
		}
		var again Reference
		b, _ := r.MarshalText()
		if again.UnmarshalText(b) != nil || again != r {
			t.Errorf("%q does not survive its text: %s", text, again)
		}
	}
	for _, text := range []string{"UPPER", "a b", "a:", ":1", "../x", "x@sha256:12", "x@md5:" + hex, "oci:/etc", "docker-archive:x.tar", "sha256:12", "http://x/y", "x/" + strings.Repeat("a", 300), "a\x00b", "x@sha256:" + hex + "@sha256:" + hex, "a/../b", "x//y", "ghcr.io/-a", "host:1/../x"} {
		if r, err := ParseReference(text); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%q: %v, %v", text, r, err)
		}
	}
}

// A pulled image is there with its whole configuration, and is not pulled a second time.
func TestPull(t *testing.T) {
	w := newWorld(t)
	w.push("a/b:1", plainImage(t))
	var progress atomic.Int64
	image, err := w.pull("a/b:1", PullOptions{Owner: "ann", Progress: func(p Progress) {
		if p.State == "done" {
			progress.Add(p.Done)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintln(image.Config.Env, image.Config.WorkingDir, image.Config.User, image.Config.ExposedPorts, image.Config.StopSignal, image.Config.Healthcheck.Interval, image.Architecture, image.References, image.Owner); got != "[A=b] /w web [80/tcp] SIGQUIT 1s "+runtime.GOARCH+" ["+w.host+"/a/b:1] ann\n" {
		t.Error(got)
	}
	if progress.Load() < 1<<20 {
		t.Errorf("%d bytes were reported", progress.Load())
	}
	asked := w.count("GET/manifests/")
	if again, err := w.pull("a/b:1", PullOptions{Owner: "ann"}); err != nil || again.Digest != image.Digest || w.count("GET/manifests/") != asked {
		t.Errorf("the second pull: %v", err)
	}
	blobs := w.count("GET/blobs/")
	if _, err := w.pull("a/b:1", PullOptions{Owner: "ann", Policy: hutch.PullAlways}); err != nil || w.count("GET/manifests/") == asked || w.count("GET/blobs/") != blobs+1 {
		t.Errorf("always: %v, %d blobs", err, w.count("GET/blobs/")-blobs) // only the configuration
	}
	w.open(Options{})
	if kept, err := w.store.Inspect("ann", Reference{digest: image.Digest}); err != nil || kept.Size != image.Size || kept.Config.User != "web" {
		t.Errorf("after a restart: %v, %v", kept, err)
	}
	release := w.store.Use("ann", image.Digest)
	defer release()
	root, err := w.store.Root(context.Background(), "ann", image.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(root); err != nil || info.Size() < 1<<20 {
		t.Error(info, err)
	}
	if u, err := w.store.User(context.Background(), "ann", image.Digest, ""); err != nil || u.UID != 33 || u.Home != "/srv" {
		t.Errorf("%v %v", u, err)
	}
	if left := w.files(tempDir, partialDir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestPullIsRefused(t *testing.T) {
	w := newWorld(t)
	w.push("a:1", plainImage(t))
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	arm, _ := plainImage(t).ConfigFile()
	arm = arm.DeepCopy()
	arm.Architecture = other
	foreign, _ := mutate.ConfigFile(plainImage(t), arm)
	w.push("foreign:1", foreign)
	for name, c := range map[string]struct {
		ref  string
		o    PullOptions
		kind hutch.Kind
		says string
	}{
		"host":         {"host", PullOptions{}, hutch.NotFound, "host"},
		"local":        {"localhost/a", PullOptions{}, hutch.NotFound, "localhost/a"},
		"digest":       {"sha256:" + strings.Repeat("0", 64), PullOptions{}, hutch.NotFound, "sha256"},
		"never":        {w.host + "/a:1", PullOptions{Policy: hutch.PullNever}, hutch.NotFound, "/a:1"},
		"policy":       {w.host + "/a:1", PullOptions{Policy: "maybe"}, hutch.Invalid, "maybe"},
		"platform":     {w.host + "/a:1", PullOptions{Platform: "amd64"}, hutch.Invalid, "linux/amd64"},
		"no tag":       {w.host + "/a:2", PullOptions{}, hutch.NotFound, "tag"},
		"no image":     {w.host + "/none:1", PullOptions{}, hutch.NotFound, "none"},
		"architecture": {w.host + "/foreign:1", PullOptions{}, hutch.Unsupported, "linux/" + other},
		"not allowed":  {w.host + "/a:1", PullOptions{Allowed: []string{"docker.io", "*.example"}}, hutch.Denied, "docker.io"},
		"no digest":    {w.host + "/a@sha256:" + strings.Repeat("0", 64), PullOptions{}, hutch.NotFound, "digest"},
		"loopback":     {"127.0.0.1:1/a:1", PullOptions{}, hutch.Denied, "private"},
		"by name":      {"localhost:1/a:1", PullOptions{}, hutch.Denied, "private"},
		"metadata":     {"169.254.169.254/a:1", PullOptions{}, hutch.Denied, "metadata"},
	} {
		ref, err := ParseReference(c.ref)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.store.Pull(context.Background(), ref, c.o)
		if name == "host" && errors.Is(err, hutch.Invalid) {
			continue
		}
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := append(w.store.Images(""), Image{})[:0]; len(left) != 0 || len(w.files(blobsDir, recordsDir)) != 0 {
		t.Errorf("left: %v", w.files(blobsDir, recordsDir))
	}
}

// An index leads to the image for the platform. An index that is nested too deeply is refused.
func TestIndexes(t *testing.T) {
	w := newWorld(t)
	image := plainImage(t)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: imageOf(t, layerOf(t, "a", "s390")), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}})
	deep := index
	for range 5 {
		deep = mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: deep})
	}
	for text, i := range map[string]v1.ImageIndex{"i:1": index, "deep:1": deep} {
		at, _ := name.NewTag(w.host+"/"+text, name.Insecure)
		if err := remote.WriteIndex(at, i); err != nil {
			t.Fatal(err)
		}
	}
	want, _ := image.Digest()
	if got, err := w.pull("i:1", PullOptions{}); err != nil || got.Digest != want.String() {
		t.Errorf("%v %v", got, err)
	}
	if _, err := w.pull("i:1", PullOptions{Platform: "linux/riscv64"}); !errors.Is(err, hutch.Unsupported) || !strings.Contains(err.Error(), "linux/s390x") {
		t.Error(err)
	}
	if _, err := w.pull("deep:1", PullOptions{}); !errors.Is(err, hutch.Exhausted) {
		t.Error(err)
	}
}

func TestPassword(t *testing.T) {
	w := newWorld(t)
	w.push("a:1", plainImage(t))
	w.on(func(answer http.ResponseWriter, r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		if user == "ann" && password == "secret" {
			return false
		}
		answer.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		answer.WriteHeader(http.StatusUnauthorized)
		return true
	})
	if _, err := w.pull("a:1", PullOptions{}); !errors.Is(err, hutch.Denied) || !strings.Contains(err.Error(), "log in") {
		t.Errorf("without: %v", err)
	}
	known := func(registry string) (Credential, bool) {
		return Credential{Username: "ann", Password: "secret"}, registry == w.host
	}
	if _, err := w.pull("a:1", PullOptions{Credentials: known}); err != nil {
		t.Errorf("with: %v", err)
	}
}

// A registry that hangs, before its answer or in the middle of a layer, is given up after the idle timeout.
func TestHangs(t *testing.T) {
	for _, where := range []string{"/manifests/", "/blobs/", "/v2/", "body"} {
		w := newWorld(t)
		w.push("a:1", plainImage(t))
		pauses = []time.Duration{time.Millisecond}
		end := make(chan struct{})
		w.on(func(answer http.ResponseWriter, r *http.Request) bool {
			if where == "body" && strings.Contains(r.URL.Path, "/blobs/") {
				answer.Header().Set("Content-Length", "1000000")
				answer.Write([]byte("x"))
				answer.(http.Flusher).Flush()
			} else if !strings.Contains(r.URL.Path, where) {
				return false
			}
			<-end
			return true
		})
		w.open(Options{IdleTimeout: 200 * time.Millisecond})
		start := time.Now()
		_, err := w.pull("a:1", PullOptions{})
		close(end)
		if !errors.Is(err, hutch.Unavailable) || time.Since(start) > 10*time.Second {
			t.Errorf("%s: %v after %v", where, err, time.Since(start))
		}
	}
}

// breakOff sends the beginning of each big blob and then closes the connection; it supports Range.
func breakOff(content []byte, digest string, after int, ranges *[]string) func(http.ResponseWriter, *http.Request) bool {
	return func(answer http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, digest) || r.Method != http.MethodGet {
			return false
		}
		from := 0
		*ranges = append(*ranges, r.Header.Get("Range"))
		if fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); from > 0 {
			answer.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content)-1, len(content)))
		}
		answer.Header().Set("Content-Length", strconv.Itoa(len(content)-from))
		if from > 0 {
			answer.WriteHeader(http.StatusPartialContent)
		}
		answer.Write(content[from:min(from+after, len(content))])
		return true // less than the length: the server closes the connection
	}
}

func compressed(t *testing.T, l v1.Layer) (content []byte, digest string) {
	r, err := l.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	content, err = io.ReadAll(r)
	d, _ := l.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return content, d.String()
}

// A layer that breaks off is continued: on the next connection, and after a restart.
func TestResumes(t *testing.T) {
	w := newWorld(t)
	big := layerOf(t, "big", noise(4<<20, "big"))
	w.push("a:1", imageOf(t, layerOf(t, "small", "1"), big))
	content, digest := compressed(t, big)
	var ranges []string
	pauses = []time.Duration{time.Millisecond}
	w.on(breakOff(content, digest, 1<<20, &ranges))
	if _, err := w.pull("a:1", PullOptions{Owner: "ann"}); !errors.Is(err, hutch.Unavailable) || !strings.Contains(err.Error(), "kept") {
		t.Fatal(err)
	}
	if len(w.files(recordsDir)) != 0 || len(w.files(partialDir)) != 1 {
		t.Fatalf("left: %v", w.files(recordsDir, partialDir))
	}
	os.WriteFile(filepath.Join(w.dir, tempDir, "half"), []byte("x"), 0o600)
	w.open(Options{})
	if len(w.files(tempDir)) != 0 {
		t.Error("a temporary file is left")
	}
	w.on(breakOff(content, digest, 8<<20, &ranges))
	if _, err := w.pull("a:1", PullOptions{Owner: "ann"}); err != nil {
		t.Fatal(err)
	}
	if want := "[ bytes=1048576- bytes=2097152-]"; fmt.Sprint(ranges) != want {
		t.Errorf("asked for %q, want %q", fmt.Sprint(ranges), want)
	}
	if len(w.files(partialDir)) != 0 {
		t.Errorf("left: %v", w.files(partialDir))
	}
}

// A file that a killed server left incomplete is detected, and fetched again.
func TestResumesFromNonsense(t *testing.T) {
	w := newWorld(t)
	big := layerOf(t, "big", noise(2<<20, "big"))
	w.push("a:1", imageOf(t, big))
	content, digest := compressed(t, big)
	for _, left := range [][]byte{make([]byte, 1<<20), make([]byte, 8<<20), content} {
		name := filepath.Join(w.dir, partialDir, ownerHash("ann")+"-"+digest[7:])
		if err := os.WriteFile(name, left, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := w.pull("a:1", PullOptions{Owner: "ann", Policy: hutch.PullAlways}); err != nil {
			t.Fatal(err)
		}
		if b, _ := os.ReadFile(w.store.blobPath(digest)); !bytes.Equal(b, content) {
			t.Error("the layer is not the one that was asked for")
		}
		if err := w.store.Remove("ann", w.ref("a:1")); err != nil {
			t.Fatal(err)
		}
	}
	if left := w.files(blobsDir, recordsDir, partialDir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// Nothing is accepted from a registry that sends something else than what was requested.
func TestLies(t *testing.T) {
	for _, what := range []string{"/manifests/", "/blobs/"} {
		w := newWorld(t)
		image := plainImage(t)
		w.push("a:1", image)
		digest, _ := image.Digest()
		w.on(func(answer http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, what+"sha256:") {
				return false
			}
			body := []byte(`{"schemaVersion":2,"config":{"digest":"sha256:` + strings.Repeat("0", 64) + `"},"layers":[]}`)
			if what == "/blobs/" {
				body = make([]byte, 2<<20)
			}
			answer.Write(body)
			return true
		})
		_, err := w.pull("a@"+digest.String(), PullOptions{})
		if !errors.Is(err, hutch.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
		if left := w.files(blobsDir, recordsDir, partialDir, tempDir); len(left) != 0 {
			t.Errorf("%s left %v", what, left)
		}
	}
}

// No redirect, no token server and no name leads to the server's own network or to metadata.
func TestForgedDestinations(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another server on loopback was reached") }))
	defer other.Close()
	for _, to := range []string{"http://169.254.169.254/latest/meta-data", "http://[::ffff:169.254.169.254]/", other.URL, "http://10.0.0.1/", "http://[64:ff9b::a00:1]/", "http://localhost:1/"} {
		for _, how := range []string{"/blobs/", "/manifests/", "token"} {
			w := newWorld(t)
			w.push("a:1", plainImage(t))
			pauses = nil
			w.on(func(answer http.ResponseWriter, r *http.Request) bool {
				switch {
				case how == "token":
					answer.Header().Set("WWW-Authenticate", `Bearer realm="`+to+`",service="x"`)
					answer.WriteHeader(http.StatusUnauthorized)
				case strings.Contains(r.URL.Path, how):
					http.Redirect(answer, r, to, http.StatusFound)
				default:
					return false
				}
				return true
			})
			_, err := w.pull("a:1", PullOptions{})
			if err == nil || how != "token" && !errors.Is(err, hutch.Denied) {
				t.Errorf("%s to %s: %v", how, to, err)
			}
		}
	}
}

func TestRedirectsInCircles(t *testing.T) {
	w := newWorld(t)
	w.push("a:1", plainImage(t))
	w.on(func(answer http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/manifests/") {
			http.Redirect(answer, r, r.URL.Path, http.StatusFound)
			return true
		}
		return false
	})
	if _, err := w.pull("a:1", PullOptions{}); err == nil {
		t.Error("it was pulled")
	}
}

// Limits are checked before anything is fetched, whatever the manifest says.
func TestGreedyManifests(t *testing.T) {
	hash := func(c string) string { return "sha256:" + strings.Repeat(c, 64) }
	config := `{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"` + hash("1") + `","size":10}`
	layer := func(size string) string {
		return `{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"` + hash("2") + `","size":` + size + `}`
	}
	manifest := func(config string, layers ...string) string {
		return `{"schemaVersion":2,"config":` + config + `,"layers":[` + strings.Join(layers, ",") + `]}`
	}
	many := make([]string, 300)
	for i := range many {
		many[i] = layer("1")
	}
	for name, c := range map[string]struct {
		body string
		kind hutch.Kind
	}{
		"huge layer":    {manifest(config, layer("99999999999999")), hutch.Exhausted},
		"negative":      {manifest(config, layer("-1")), hutch.Unsupported},
		"many layers":   {manifest(config, many...), hutch.Exhausted},
		"huge config":   {manifest(strings.Replace(config, ":10}", ":99999999}", 1), layer("1")), hutch.Exhausted},
		"both":          {strings.Replace(manifest(config), "{", `{"manifests":[],`, 1), hutch.Invalid},
		"neither":       {`{"schemaVersion":2}`, hutch.Invalid},
		"schema 1":      {`{"schemaVersion":1,"fsLayers":[]}`, hutch.Unsupported},
		"no JSON":       {`<html>`, hutch.Invalid},
		"long":          {strings.Repeat(" ", 5<<20), hutch.Exhausted},
		"empty index":   {`{"schemaVersion":2,"manifests":[]}`, hutch.Invalid},
		"bad digest":    {manifest(strings.Replace(config, hash("1"), "sha256:../../../etc/passwd", 1)), hutch.Invalid},
		"other digest":  {manifest(strings.Replace(config, hash("1"), "sha512:"+strings.Repeat("1", 128), 1)), hutch.Unsupported},
		"no image":      {manifest(config, strings.Replace(layer("1"), "oci.image.layer", "cncf.helm", 1)), hutch.Unsupported},
		"unknown entry": {`{"schemaVersion":2,"manifests":[{"digest":"` + hash("3") + `","platform":{"os":"unknown","architecture":"unknown"}}]}`, hutch.Invalid},
	} {
		w := newWorld(t)
		w.on(func(answer http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			io.WriteString(answer, c.body)
			return true
		})
		if _, err := w.pull("a:1", PullOptions{}); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
		if w.count("GET/blobs/") != 0 {
			t.Errorf("%s: a blob was asked for", name)
		}
	}
}

// Pulls of one image at once are one transfer; when one caller leaves, the others still get the image.
func TestPullsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.push("a:1", plainImage(t))
	gate := make(chan struct{})
	w.on(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			<-gate
		}
		return false
	})
	gone, leave := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := w.store.Pull(gone, w.ref("a:1"), PullOptions{Owner: "ann"}); !errors.Is(err, context.Canceled) {
			t.Errorf("who left: %v", err)
		}
	})
	for range 8 {
		all.Go(func() {
			if _, err := w.pull("a:1", PullOptions{Owner: "ann"}); err != nil {
				t.Error(err)
			}
		})
	}
	users := func() int {
		w.store.mu.Lock()
		defer w.store.mu.Unlock()
		for _, f := range w.store.flights {
			return f.users
		}
		return 0
	}
	await(t, func() bool { return users() == 9 })
	leave()
	await(t, func() bool { return users() == 8 })
	close(gate)
	all.Wait()
	if n := w.count("GET/blobs/"); n != 3 {
		t.Errorf("%d blobs were asked for", n)
	}
}

func await(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come")
		}
	}
}

// The transfer ends when the last of its callers leaves.
func TestPullIsLeft(t *testing.T) {
	w := newWorld(t)
	w.push("a:1", plainImage(t))
	asked, ended := make(chan struct{}, 9), make(chan struct{}, 9)
	w.on(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			asked <- struct{}{}
			<-r.Context().Done()
			ended <- struct{}{}
		}
		return false
	})
	ctx, leave := context.WithCancel(context.Background())
	go func() { <-asked; leave() }()
	if _, err := w.store.Pull(ctx, w.ref("a:1"), PullOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-ended
	w.store.Close()
}

// Owners see their own images and public ones, and get no layers of another owner by knowing a digest.
func TestOwners(t *testing.T) {
	w := newWorld(t)
	secret := layerOf(t, "secret", "of ann")
	w.push("ann:1", imageOf(t, secret))
	image, err := w.pull("ann:1", PullOptions{Owner: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []Reference{w.ref("ann:1"), {digest: image.Digest}} {
		if _, err := w.store.Inspect("bob", ref); !errors.Is(err, hutch.NotFound) {
			t.Errorf("bob sees %s: %v", ref, err)
		}
	}
	if _, err := w.store.Root(context.Background(), "bob", image.Digest); !errors.Is(err, hutch.NotFound) {
		t.Errorf("bob's root: %v", err)
	}
	if err := w.store.Remove("bob", w.ref("ann:1")); !errors.Is(err, hutch.NotFound) {
		t.Errorf("bob removes: %v", err)
	}
	w.on(func(answer http.ResponseWriter, r *http.Request) bool { // the registry of bob, which has only the manifest
		_, digest := compressed(t, secret)
		if strings.HasSuffix(r.URL.Path, digest) {
			http.NotFound(answer, r)
			return true
		}
		return false
	})
	if _, err := w.pull("ann:1", PullOptions{Owner: "bob"}); !errors.Is(err, hutch.NotFound) {
		t.Errorf("bob gets a layer of ann: %v", err)
	}
	w.on(nil)
	if err := w.store.Tag("", Reference{digest: image.Digest}, w.ref("public:1")); !errors.Is(err, hutch.NotFound) {
		t.Errorf("the server makes ann's image public: %v", err)
	}
	if _, err := w.pull("ann:1", PullOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Inspect("bob", w.ref("ann:1")); err != nil {
		t.Errorf("bob does not see the public one: %v", err)
	}
	if err := w.store.Remove("bob", w.ref("ann:1")); !errors.Is(err, hutch.Denied) {
		t.Errorf("bob removes the public one: %v", err)
	}
	if n := len(w.store.Images("")); n != 2 || len(w.store.Images("bob")) != 1 || len(w.store.Images("ann")) != 2 {
		t.Errorf("%d images", n)
	}
}

func TestTagsAndRemoval(t *testing.T) {
	w := newWorld(t)
	w.push("a:1", imageOf(t, layerOf(t, "a", "1")))
	w.push("b:1", imageOf(t, layerOf(t, "b", "1")))
	a, err := w.pull("a:1", PullOptions{})
	b, err2 := w.pull("b:1", PullOptions{})
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	web, _ := ParseReference("localhost/web:1")
	for _, source := range []Reference{w.ref("a:1"), {digest: b.Digest}} {
		if err := w.store.Tag("", source, web); err != nil {
			t.Fatal(err)
		}
	}
	w.open(Options{})
	if now, err := w.store.Inspect("", web); err != nil || now.Digest != b.Digest {
		t.Errorf("the name leads to %v, %v", now.Digest, err)
	}
	if err := w.store.Tag("", web, Reference{digest: a.Digest}); !errors.Is(err, hutch.Invalid) {
		t.Error(err)
	}
	release := w.store.Use("bob", b.Digest)
	if err := w.store.Remove("", w.ref("b:1")); err != nil {
		t.Error(err)
	}
	if err := w.store.Remove("", web); !errors.Is(err, hutch.Conflict) {
		t.Errorf("in use: %v", err)
	}
	release()
	if err := w.store.Remove("", web); err != nil {
		t.Error(err)
	}
	if n := len(w.files(blobsDir)); n != 3 {
		t.Errorf("%d blobs are left", n)
	}
	if err := w.store.Remove("", Reference{digest: a.Digest}); err != nil || len(w.files(blobsDir, recordsDir)) != 0 {
		t.Errorf("%v, left: %v", err, w.files(blobsDir, recordsDir))
	}
}

// A name that two records have belongs to the newer record; files that are not records are ignored.
func TestKilledWhileNaming(t *testing.T) {
	w := newWorld(t)
	w.push("a:1", imageOf(t, layerOf(t, "a", "1")))
	old, _ := w.pull("a:1", PullOptions{})
	record, err := os.ReadFile(filepath.Join(w.dir, w.files(recordsDir)[0]))
	if err != nil {
		t.Fatal(err)
	}
	w.push("a:1", imageOf(t, layerOf(t, "a", "2")))
	now, err := w.pull("a:1", PullOptions{Policy: hutch.PullAlways})
	if err != nil || now.Digest == old.Digest {
		t.Fatal(err)
	}
	file := ownerHash("") + "-" + old.Digest[7:] + ".json"
	for name, content := range map[string][]byte{file: record, "nonsense.json": []byte("{"), "." + file + "-1": nil} {
		if err := os.WriteFile(filepath.Join(w.dir, recordsDir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.open(Options{})
	if got, err := w.store.Inspect("", w.ref("a:1")); err != nil || got.Digest != now.Digest {
		t.Errorf("%v, %v", got, err)
	}
	gone, err := w.store.Prune(context.Background(), "", PruneOptions{Unnamed: true})
	if err != nil || len(gone.Images) != 1 || gone.Images[0].Digest != old.Digest || gone.Bytes == 0 {
		t.Errorf("%v %v", gone, err)
	}
}

func TestPrune(t *testing.T) {
	w := newWorld(t)
	var images []Image
	for i := range 3 {
		w.push(fmt.Sprintf("i:%d", i), imageOf(t, layerOf(t, "a", noise(1<<20, strconv.Itoa(i)))))
		image, err := w.pull(fmt.Sprintf("i:%d", i), PullOptions{Owner: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, image)
	}
	ctx := context.Background()
	root, err := w.store.Root(ctx, "ann", images[1].Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer w.store.Use("ann", images[0].Digest)()
	if gone, err := w.store.Prune(ctx, "bob", PruneOptions{Unused: 1}); err != nil || len(gone.Images) != 0 {
		t.Errorf("bob's: %v %v", gone, err)
	}
	if gone, err := w.store.Prune(ctx, "ann", PruneOptions{Roots: 1}); err != nil || gone.Bytes < 1<<20 || len(gone.Images) != 0 {
		t.Errorf("roots: %v %v", gone, err)
	}
	if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
		t.Error("the root is still there")
	}
	if again, err := w.store.Root(ctx, "ann", images[1].Digest); err != nil || again != root {
		t.Errorf("the root is not made again: %v", err)
	}
	if gone, err := w.store.Prune(ctx, "ann", PruneOptions{Bytes: 5 << 19}); err != nil || len(gone.Images) != 1 || gone.Images[0].Digest != images[1].Digest {
		t.Errorf("by bytes: %v %v", gone, err)
	}
	if gone, err := w.store.Prune(ctx, "", PruneOptions{Unused: 1}); err != nil || len(gone.Images) != 1 || gone.Images[0].Digest != images[2].Digest {
		t.Errorf("by age: %v %v", gone, err)
	}
	if left := w.store.Images("ann"); len(left) != 1 || left[0].Digest != images[0].Digest {
		t.Errorf("left: %v", left)
	}
}

// A tree that a runtime has unpacked next to a root counts towards the disk space and is removed with the root. A tree
// that is being unpacked stays.
func TestTreeGoesWithTheRoot(t *testing.T) {
	w := newWorld(t)
	w.push("i:1", imageOf(t, layerOf(t, "a", "text")))
	image, err := w.pull("i:1", PullOptions{Owner: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	root, err := w.store.Root(ctx, "ann", image.Digest)
	if err != nil {
		t.Fatal(err)
	}
	tree, unfinished := root+".tree", filepath.Join(filepath.Dir(root), ".new-1")
	unpack := func() {
		if err := errors.Join(os.MkdirAll(filepath.Join(tree, "folder"), 0o755), os.WriteFile(filepath.Join(tree, "folder", "a"), make([]byte, 2<<20), 0o644), os.MkdirAll(unfinished, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	unpack()
	if gone, err := w.store.Prune(ctx, "", PruneOptions{Roots: 1}); err != nil || gone.Bytes < 2<<20 {
		t.Errorf("the roots: %+v, %v", gone, err)
	}
	if _, err := os.Stat(tree); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tree stays: %v", err)
	}
	unpack()
	if err := w.store.Remove("ann", w.ref("i:1")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(tree); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tree stays after its image: %v", err)
	}
	if _, err := os.Stat(unfinished); err != nil {
		t.Errorf("what is being unpacked: %v", err)
	}
	w.store.Close()
	if left, _ := os.ReadDir(filepath.Join(filepath.Dir(root), "..", tempDir)); len(left) > 0 {
		t.Errorf("left on disk: %v", left)
	}
}

// A mirror is tried first; what it does not have comes from the registry.
func TestMirrors(t *testing.T) {
	w, m := newWorld(t), newWorld(t)
	image := plainImage(t)
	m.push("cache/library/python:3", image)
	w.push("own:1", plainImage(t))
	w.open(Options{Registries: map[string]Registry{
		"docker.io": {Mirrors: []string{"http://" + m.host + "/cache"}},
		w.host:      {Mirrors: []string{"http://127.0.0.1:1", "http://" + m.host}, Private: true, Insecure: true},
	}})
	python, _ := ParseReference("python:3")
	if got, err := w.store.Pull(context.Background(), python, PullOptions{}); err != nil || fmt.Sprint(got.References) != "[docker.io/library/python:3]" {
		t.Errorf("%v %v", got.References, err)
	}
	if _, err := w.pull("own:1", PullOptions{Owner: "ann"}); err != nil {
		t.Error(err)
	}
}

// TestProxy: with a proxy, a registry whose name only the proxy can resolve works. A private registry and a mirror are
// reached directly. Redirects of a registry are checked.
func TestProxy(t *testing.T) {
	w := newWorld(t)
	w.push("demo:1", plainImage(t))
	var asked sync.Map
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.Host, true)
		if strings.Contains(r.URL.Path, "/stray/") {
			http.Redirect(rw, r, "http://169.254.169.254/latest/meta-data", http.StatusTemporaryRedirect)
			return
		}
		to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: w.host})
		to.ServeHTTP(rw, r)
	}))
	t.Cleanup(proxy.Close)
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	insecure := Registry{Insecure: true}
	w.open(Options{Proxy: at, Registries: map[string]Registry{
		"registry.example": insecure, "localhost:5000": insecure, "10.0.0.1:5000": insecure, w.host: {Insecure: true, Private: true},
	}})
	for text, want := range map[string]hutch.Kind{
		"registry.example/demo:1": "", w.host + "/demo:1": "",
		"registry.example/stray/x:1": hutch.Denied, "localhost:5000/x:1": hutch.Denied, "10.0.0.1:5000/x:1": hutch.Denied,
		"127.1:5000/x:1": hutch.Denied, "0x7f000001:5000/x:1": hutch.Denied,
	} {
		ref, err := ParseReference(text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.store.Pull(context.Background(), ref, PullOptions{Policy: hutch.PullAlways})
		if (want == "") != (err == nil) || err != nil && hutch.KindOf(err) != want {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	var hosts []string
	asked.Range(func(host, _ any) bool { hosts = append(hosts, host.(string)); return true })
	if len(hosts) == 0 || slices.ContainsFunc(hosts, func(h string) bool { return strings.TrimSuffix(h, ":443") != "registry.example" }) {
		t.Errorf("the proxy was asked for %q", hosts)
	}
}

func TestSaveAndLoad(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	w.push("a:1", plainImage(t))
	image, err := w.pull("a:1", PullOptions{Owner: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := w.store.Save(context.Background(), &file, "ann", w.ref("a:1")); err != nil {
		t.Fatal(err)
	}
	loaded, err := other.store.Load(context.Background(), bytes.NewReader(file.Bytes()), LoadOptions{Owner: "bob"})
	if err != nil || len(loaded) != 1 || loaded[0].Digest != image.Digest || fmt.Sprint(loaded[0].References) != "["+w.host+"/a:1]" {
		t.Fatalf("%v %v", loaded, err)
	}
	if _, err := other.store.Root(context.Background(), "bob", image.Digest); err != nil {
		t.Error(err)
	}
	if err := w.store.Save(context.Background(), io.Discard, "bob", w.ref("a:1")); !errors.Is(err, hutch.NotFound) {
		t.Errorf("bob saves: %v", err)
	}
	tag, _ := name.NewTag("web:2")
	path := filepath.Join(t.TempDir(), "docker.tar")
	if err := tarball.WriteToFile(path, tag, plainImage(t)); err != nil { // as docker save writes it
		t.Fatal(err)
	}
	f, _ := os.Open(path)
	defer f.Close()
	loaded, err = w.store.Load(context.Background(), f, LoadOptions{Owner: "bob"})
	if err != nil || len(loaded) != 1 || fmt.Sprint(loaded[0].References) != "[docker.io/library/web:2]" {
		t.Fatalf("%v %v", loaded, err)
	}
	// Save writes the format that docker load reads.
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if read, err := tarball.ImageFromPath(path, nil); err != nil {
		t.Error(err)
	} else if layers, err := read.Layers(); err != nil || len(layers) != 2 {
		t.Error(layers, err)
	}
}

func TestLoadIsRefused(t *testing.T) {
	w := newWorld(t)
	archive := func(files ...string) []byte {
		var b bytes.Buffer
		tw := tar.NewWriter(&b)
		for i := 0; i < len(files); i += 2 {
			tw.WriteHeader(&tar.Header{Name: files[i], Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(files[i+1]))})
			io.WriteString(tw, files[i+1])
		}
		tw.Close()
		return b.Bytes()
	}
	many := make([]string, 0, 22000)
	for i := range 10_001 {
		many = append(many, strconv.Itoa(i), "")
	}
	for name, c := range map[string]struct {
		content []byte
		kind    hutch.Kind
	}{
		"nothing":   {nil, hutch.Invalid},
		"noise":     {[]byte(noise(5000, "n")), hutch.Invalid},
		"other tar": {archive("a", "b"), hutch.Invalid},
		"up":        {archive("../../../../tmp/hutch-was-here", "b", "manifest.json", `[{"Config":"../../../../etc/passwd","Layers":[]}]`), hutch.Invalid},
		"no blobs":  {archive("index.json", `{"schemaVersion":2,"manifests":[{"digest":"sha256:`+strings.Repeat("0", 64)+`"}]}`), hutch.Invalid},
		"many":      {archive(many...), hutch.Exhausted},
		"long":      {archive("manifest.json", strings.Repeat(" ", 5<<20)), hutch.Exhausted},
		"cut":       {archive("manifest.json", strings.Repeat(" ", 5000))[:2000], hutch.Invalid},
	} {
		if i, err := w.store.Load(context.Background(), bytes.NewReader(c.content), LoadOptions{}); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v, %v", name, i, err)
		}
	}
	if left := w.files(blobsDir, recordsDir, tempDir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestPush(t *testing.T) {
	w := newWorld(t)
	w.push("a:1", plainImage(t))
	image, err := w.pull("a:1", PullOptions{Owner: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.store.Tag("ann", w.ref("a:1"), w.ref("copy/of:2")); err != nil {
		t.Fatal(err)
	}
	var sent atomic.Int64
	digest, err := w.store.Push(context.Background(), w.ref("copy/of:2"), PushOptions{Owner: "ann", Progress: func(p Progress) { sent.Store(p.Done) }})
	if err != nil || digest != image.Digest {
		t.Fatal(digest, err)
	}
	if got, err := w.pull("copy/of:2", PullOptions{Owner: "bob"}); err != nil || got.Digest != image.Digest {
		t.Errorf("%v %v", got, err)
	}
	if _, err := w.store.Push(context.Background(), w.ref("copy/of:2"), PushOptions{Owner: "eve"}); !errors.Is(err, hutch.NotFound) {
		t.Errorf("eve pushes: %v", err)
	}
	if _, err := w.store.Push(context.Background(), w.ref("copy/of:2"), PushOptions{Owner: "ann", Allowed: []string{"docker.io"}}); !errors.Is(err, hutch.Denied) {
		t.Error(err)
	}
	w.on(func(answer http.ResponseWriter, _ *http.Request) bool {
		answer.WriteHeader(http.StatusForbidden)
		return true
	})
	if _, err := w.store.Push(context.Background(), w.ref("copy/of:2"), PushOptions{Owner: "ann"}); !errors.Is(err, hutch.Denied) {
		t.Error(err)
	}
}

// A full disk, while layers come and while a root is made, is reported and leaves nothing half done.
func TestFullDisk(t *testing.T) {
	w := newWorld(t)
	w.store.Close()
	w.store, w.dir = nil, t.TempDir()
	disk.Shrink(t, w.dir, "12m")
	w.open(Options{})
	w.push("big:1", imageOf(t, layerOf(t, "a", noise(16<<20, "a"))))
	w.push("small:1", imageOf(t, layerOf(t, "a", noise(6<<20, "a"))))
	if _, err := w.pull("big:1", PullOptions{}); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("pull: %v", err)
	}
	if left := w.files(blobsDir, recordsDir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	for _, f := range w.files(partialDir) { // these wait a week for another pull
		os.Remove(filepath.Join(w.dir, f))
	}
	image, err := w.pull("small:1", PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Root(context.Background(), "", image.Digest); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("root: %v", err)
	}
	if left := w.files(rootsDir, tempDir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	var file bytes.Buffer
	if err := w.store.Save(context.Background(), &file, "", w.ref("small:1")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Load(context.Background(), &file, LoadOptions{Owner: "ann"}); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("load: %v", err)
	}
	if left := w.files(tempDir); len(left) != 0 || len(w.store.Images("")) != 1 {
		t.Errorf("left: %v", left)
	}
}

// A layer that the disk has changed is noticed when the root is made, and fetched again by the next pull.
func TestDamagedLayer(t *testing.T) {
	w := newWorld(t)
	w.push("a:1", plainImage(t))
	image, err := w.pull("a:1", PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at := w.store.blobPath(image.Layers[1].Digest)
	b, _ := os.ReadFile(at)
	b[len(b)/2] ^= 1
	os.WriteFile(at, b, 0o600)
	if _, err := w.store.Root(context.Background(), "", image.Digest); !errors.Is(err, hutch.Invalid) {
		t.Errorf("damaged: %v", err)
	}
	if _, err := w.pull("a:1", PullOptions{Policy: hutch.PullAlways}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Root(context.Background(), "", image.Digest); err != nil {
		t.Errorf("fetched again: %v", err)
	}
}

func TestConfigIsOnDisk(t *testing.T) {
	w := newWorld(t)
	w.push("a:1", imageOf(t, layerOf(t, "a", "1")))
	if _, err := w.pull("a:1", PullOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, f := range w.files(recordsDir) {
		text, _ := os.ReadFile(filepath.Join(w.dir, f))
		var r map[string]any
		if err := json.Unmarshal(text, &r); err != nil || r["digest"] == nil || r["configDigest"] == nil {
			t.Errorf("%s %v", text, err)
		}
	}
}

// An image is committed over another one. Its layer is checked like that of a registry, and a bad layer leaves nothing
// behind.
func TestCommit(t *testing.T) {
	w := newWorld(t)
	w.push("i:1", imageOf(t, layerOf(t, "a", "base")))
	base, err := w.pull("i:1", PullOptions{Owner: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	name, _ := ParseReference("localhost/new:1")
	commit := func(owner string, fill func(io.Writer) error) (Image, error) {
		return w.store.Commit(context.Background(), CommitOptions{Owner: owner, Base: base.Digest, Name: name, By: "test", Fill: fill})
	}
	file := func(h tar.Header, content string) func(io.Writer) error {
		return func(out io.Writer) error {
			t := tar.NewWriter(out)
			h.Mode, h.Size = 0o644, int64(len(content))
			err := t.WriteHeader(&h)
			if err == nil {
				_, err = io.WriteString(t, content)
			}
			return errors.Join(err, t.Close())
		}
	}
	before := fmt.Sprint(w.files(blobsDir, recordsDir, rootsDir, tempDir))
	for what, c := range map[string]struct {
		owner string
		fill  func(io.Writer) error
		kind  hutch.Kind
	}{
		"another owner's base":  {"bob", file(tar.Header{Name: "b"}, "text"), hutch.NotFound},
		"no archive":            {"ann", func(out io.Writer) error { _, err := io.WriteString(out, strings.Repeat("garbage", 1000)); return err }, hutch.Invalid},
		"an archive cut off":    {"ann", func(out io.Writer) error { return file(tar.Header{Name: "b"}, "text")(&boundedWriter{out, 0, 512}) }, hutch.Exhausted},
		"a path out":            {"ann", file(tar.Header{Name: "../../b"}, "text"), hutch.Invalid},
		"a device":              {"ann", file(tar.Header{Name: "b", Typeflag: tar.TypeBlock, Devmajor: 8}, ""), hutch.Unsupported},
		"a hard link out":       {"ann", file(tar.Header{Name: "b", Typeflag: tar.TypeLink, Linkname: "../../etc/passwd"}, ""), hutch.Invalid},
		"a sandbox that leaves": {"ann", func(io.Writer) error { return hutch.Errorf(hutch.Unavailable, "gone") }, hutch.Unavailable},
	} {
		if image, err := commit(c.owner, c.fill); hutch.KindOf(err) != c.kind {
			t.Errorf("%s: %+v, %v", what, image.Digest, err)
		}
	}
	if after := fmt.Sprint(w.files(blobsDir, recordsDir, rootsDir, tempDir)); after != before {
		t.Errorf("refused commits leave %v, and there was %v", after, before)
	}
	made, err := commit("ann", file(tar.Header{Name: "b"}, "new"))
	if err != nil || len(made.Layers) != 2 || made.Layers[0] != base.Layers[0] {
		t.Fatalf("commit: %+v, %v", made, err)
	}
	if _, err := w.store.Inspect("bob", name); hutch.KindOf(err) != hutch.NotFound {
		t.Errorf("another owner sees it: %v", err)
	}
	if _, err := w.store.Root(context.Background(), "ann", made.Digest); err != nil {
		t.Error(err)
	}
}

// A root file system is made from the root file system of fewer layers, and these layers are not read again. If the
// disk has changed that file, it is removed, and all layers are read.
func TestRootOfRoot(t *testing.T) {
	w := newWorld(t)
	layers := []v1.Layer{layerOf(t, "a", "1", "d/b", noise(5000, "b")), layerOf(t, "c", "2")}
	w.push("low:1", imageOf(t, layers...))
	w.push("high:1", imageOf(t, append(layers, layerOf(t, "d/e", "3"))...))
	root := func(image string) (path string, content []byte) {
		t.Helper()
		i, err := w.pull(image, PullOptions{Owner: "ann"})
		if err == nil {
			path, err = w.store.Root(t.Context(), "ann", i.Digest)
		}
		if err == nil {
			content, err = os.ReadFile(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path, content
	}
	high, want := root("high:1")
	low, content := root("low:1")
	again := func() []byte {
		if err := os.Remove(high); err != nil {
			t.Fatal(err)
		}
		_, content := root("high:1")
		return content
	}
	content[5000] ^= 1
	if err := os.WriteFile(low, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again(), want) {
		t.Error("a root of a damaged root differs")
	}
	if _, err := os.Stat(low); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the damaged root: %v", err)
	}
	root("low:1")
	digest, err := layers[0].Digest()
	if err == nil {
		err = os.Rename(w.store.blobPath(digest.String()), filepath.Join(w.dir, "layer")) // it must not be needed
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again(), want) {
		t.Error("a root of a root differs")
	}
}
