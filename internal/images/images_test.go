package images

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/hutchtest/testimage"
	"hutch/internal/image"
	"hutch/internal/oci"
)

// bed is the images of a server, and a registry that has demo:1.
type bed struct {
	*Images
	registry string
	began    []string
	listed   func() // called after began was read; can be nil
}

func newBed(t *testing.T) *bed {
	t.Helper()
	srv := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0))))
	t.Cleanup(srv.Close)
	b := &bed{registry: strings.TrimPrefix(srv.URL, "http://")}
	store, err := oci.Open(t.TempDir(), oci.Options{Registries: map[string]oci.Registry{b.registry: {Private: true, Insecure: true}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	b.Images = New(Options{
		Store: store,
		Host:  func(context.Context, string) (image.Root, error) { return image.Root{Dir: "/host"}, nil },
		Began: func(context.Context) ([]string, error) {
			if b.listed != nil {
				defer b.listed()
			}
			return b.began, nil
		},
	})
	b.push(t, "demo:1", "first")
	return b
}

// push puts an image with one file into the registry.
func (b *bed) push(t *testing.T, as, content string) {
	t.Helper()
	b.pushConfig(t, as, content, v1.Config{User: "ada", Env: []string{"COLOUR=red"}, WorkingDir: "/srv"})
}

func (b *bed) pushConfig(t *testing.T, as, content string, config v1.Config) {
	t.Helper()
	layer, err := testimage.Layer("etc/passwd", "ada:x:1234:1234::/home/ada:/a\n", "file", content)
	if err != nil {
		t.Fatal(err)
	}
	img, err := testimage.Image(config, layer)
	if err != nil {
		t.Fatal(err)
	}
	if err := testimage.Push(b.registry, as, img); err != nil {
		t.Fatal(err)
	}
}

func as(t *testing.T, owner string) context.Context {
	return caller.WithOwner(t.Context(), caller.Owner{ID: owner})
}

// A sandbox keeps the image that a name stood for when it was created.
func TestResolvePinsTheDigest(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ctx := as(t, "ada")
	first, err := b.Resolve(ctx, b.registry+"/demo:1", "")
	if err != nil {
		t.Fatal(err)
	}
	b.push(t, "demo:1", "second")
	again, err := b.Resolve(ctx, b.registry+"/demo:1", "")
	if err != nil || again != first {
		t.Errorf("missing asks the registry: %q, %v; want %q", again, err, first)
	}
	newer, err := b.Resolve(ctx, b.registry+"/demo:1", hutch.PullAlways)
	if err != nil || newer == first {
		t.Errorf("always gives %q, %v; want another than %q", newer, err, first)
	}
	root, err := b.Root(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	if got := root.Account(); got.UID != 1234 || got.Home != "/home/ada" || root.Workdir() != "/srv" || root.Getenv("COLOUR") != "red" {
		t.Errorf("the image's config gives %+v, %s, %v", got, root.Workdir(), root.Env)
	}
	if root, err := b.Root(t.Context(), image.HostName); err != nil || root.Dir != "/host" {
		t.Errorf("host is %+v, %v", root, err)
	}
}

// An owner sees its own images only. An image that a sandbox uses cannot be deleted.
func TestOwnersAndUse(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ada, bob := as(t, "ada"), as(t, "bob")
	var states []string
	made, err := b.PullImage(ada, hutch.PullRequest{Image: b.registry + "/demo:1"}, func(tr hutch.Transfer) error {
		states = append(states, tr.State)
		return nil
	})
	if err != nil || len(states) == 0 || states[len(states)-1] != "done" {
		t.Fatalf("pull: %v, progress %q", err, states)
	}
	if list, err := b.Images.Images(bob); err != nil || len(list) != 0 {
		t.Errorf("bob sees %+v, %v", list, err)
	}
	if _, err := b.Image(bob, made.ID); !errors.Is(err, hutch.NotFound) {
		t.Errorf("bob reads ada's image: %v", err)
	}
	if err := b.DeleteImage(bob, made.ID); !errors.Is(err, hutch.NotFound) {
		t.Errorf("bob deletes ada's image: %v", err)
	}
	b.began = []string{b.registry + "/demo:1@" + made.ID}
	if err := b.DeleteImage(ada, made.ID); !errors.Is(err, hutch.Conflict) {
		t.Errorf("an image in use: %v", err)
	}
	if p, err := b.PruneImages(ada, hutch.PruneRequest{}); err != nil || len(p.Images) != 0 {
		t.Errorf("prune takes an image in use: %+v, %v", p, err)
	}
	b.began = nil
	if p, err := b.PruneImages(ada, hutch.PruneRequest{}); err != nil || len(p.Images) != 1 || p.Freed <= 0 {
		t.Errorf("prune: %+v, %v", p, err)
	}
	if _, err := b.Image(ada, made.ID); !errors.Is(err, hutch.NotFound) {
		t.Errorf("a pruned image: %v", err)
	}
}

// A sweep removes the images that no sandbox has used, and nothing else.
func TestSweep(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ada := as(t, "ada")
	name, err := b.Resolve(ada, b.registry+"/demo:1", "")
	if err != nil {
		t.Fatal(err)
	}
	root, err := b.Root(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	exists := func() bool { _, err := os.Stat(root.EROFS); return err == nil }
	sweep := func(unused, roots time.Duration) hutch.Pruned {
		p, err := b.Sweep(as(t, "bob"), unused, roots)
		if err != nil {
			t.Error(err)
		}
		return p
	}
	b.began = []string{name}
	if p := sweep(1, 1); p.Freed != 0 || !exists() {
		t.Errorf("a sandbox began with it, and the sweep removes %+v", p)
	}
	b.began = nil
	if p := sweep(time.Hour, time.Hour); p.Freed != 0 || !exists() {
		t.Errorf("it was used just now, and the sweep removes %+v", p)
	}
	if p := sweep(0, 1); p.Freed == 0 || len(p.Images) != 0 || exists() {
		t.Errorf("of roots the sweep removes %+v", p)
	}
	if _, err := b.Root(t.Context(), name); err != nil || !exists() {
		t.Errorf("the root is not made again: %v", err)
	}
	if p := sweep(1, 0); len(p.Images) != 1 || exists() {
		t.Errorf("of images the sweep removes %+v", p)
	}
}

// A saved image can be loaded, under another name.
func TestSaveAndLoad(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ada, bob := as(t, "ada"), as(t, "bob")
	made, err := b.PullImage(ada, hutch.PullRequest{Image: b.registry + "/demo:1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := b.SaveImage(ada, made.ID, &archive); err != nil {
		t.Fatal(err)
	}
	list, err := b.LoadImages(bob, "localhost/copy", &archive)
	if err != nil || len(list) != 1 {
		t.Fatalf("load: %+v, %v", list, err)
	}
	if got, err := b.Image(bob, "localhost/copy"); err != nil || got.ID != list[0].ID {
		t.Errorf("the copy is %+v, %v", got, err)
	}
	if _, err := b.Resolve(ada, "localhost/copy", ""); !errors.Is(err, hutch.NotFound) {
		t.Errorf("ada resolves bob's image: %v", err)
	}
}

// A caller that reads no progress does not delay the transfer, and its error ends the transfer.
func TestProgressFails(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	gone := errors.New("gone")
	_, err := b.PullImage(as(t, "ada"), hutch.PullRequest{Image: b.registry + "/demo:1"}, func(hutch.Transfer) error { return gone })
	if err != nil && !errors.Is(err, gone) {
		t.Errorf("the error is %v", err)
	}
}

func TestBadNames(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for _, bad := range []string{"", "-x", "A B", "host", "http://x/y", "../../etc/passwd", strings.Repeat("a", 600)} {
		if _, err := b.PullImage(as(t, "ada"), hutch.PullRequest{Image: bad}, nil); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

// A working folder with 200,000 parts is refused at once.
func TestImpossibleWorkingDir(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.pushConfig(t, "deep:1", "x", v1.Config{WorkingDir: strings.Repeat("/a", 200_000)})
	name, err := b.Resolve(as(t, "ada"), b.registry+"/deep:1", "")
	if err == nil {
		_, err = b.Root(t.Context(), name)
	}
	if !errors.Is(err, hutch.Invalid) {
		t.Error(err)
	}
}

// A mirror does not get the password that a request has for the registry.
func TestLoginIsForOneRegistry(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ref, err := oci.ParseReference("ubuntu")
	if err != nil {
		t.Fatal(err)
	}
	given := b.credentials("ada", ref, hutch.RegistryLogin{Username: "ada", Password: "secret"})
	if c, ok := given("mirror.example"); ok {
		t.Errorf("the mirror is told %+v", c)
	}
	if c, ok := given("docker.io"); !ok || c.Password != "secret" {
		t.Errorf("the registry is told %+v", c)
	}
}

// A sandbox that begins while its image is removed fails, and is not left with a root that is gone.
func TestRemovedWhileBeginning(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ada := as(t, "ada")
	name, err := b.Resolve(ada, b.registry+"/demo:1", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Root(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	began := make(chan error, 1)
	b.listed = func() {
		done := make(chan struct{})
		go func() {
			root, err := b.Root(t.Context(), name)
			if err == nil {
				<-done
				_, err = os.Stat(root.EROFS)
			}
			began <- err
		}()
		time.AfterFunc(200*time.Millisecond, func() { close(done) })
		time.Sleep(50 * time.Millisecond) // for the sandbox to get its root, if nothing stops it
	}
	if err := b.DeleteImage(ada, b.registry+"/demo:1"); err != nil {
		t.Fatal(err)
	}
	if err := <-began; !errors.Is(err, hutch.NotFound) {
		t.Errorf("the sandbox begins with %v", err)
	}
}
