package docker_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/docker"
	"hutch/internal/hutchtest"
)

// engine is a fake Docker engine with some images; while it is broken, it answers with a failure.
type engine struct {
	mu     sync.Mutex
	images string
	broken bool
	saved  int
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, "/_ping"):
		w.Header().Set("Api-Version", "1.44")
	case e.broken:
		http.Error(w, `{"message":"no space left"}`, http.StatusInternalServerError)
	case strings.HasSuffix(r.URL.Path, "/images/json") && strings.Contains(r.URL.Query().Get("filters"), "sandbox.runner=true"):
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, e.images)
	case strings.HasSuffix(r.URL.Path, "/images/get"):
		e.saved++
		io.WriteString(w, "archive of "+strings.Join(r.URL.Query()["names"], ","))
	default:
		http.NotFound(w, r)
	}
}

// store is a store that refuses the archives of an image.
type store struct {
	refused string
	loaded  []string
}

func (s *store) Image(_ context.Context, name string) (hutch.Image, error) {
	if slices.ContainsFunc(s.loaded, func(l string) bool { return strings.HasPrefix(l, name+" ") }) {
		return hutch.Image{}, nil
	}
	return hutch.Image{}, hutch.Errorf(hutch.NotFound, "no image %s", name)
}

func (s *store) LoadImages(ctx context.Context, name string, r io.Reader) ([]hutch.Image, error) {
	b, err := io.ReadAll(r)
	if err != nil || s.refused != "" && bytes.Contains(b, []byte(s.refused)) {
		return nil, errors.Join(err, hutch.Errorf(hutch.Invalid, "not an archive"))
	}
	if owner, ok := caller.OwnerOf(ctx); !ok || owner.ID != "" {
		return nil, errors.New("the image is not for all owners")
	}
	s.loaded = append(s.loaded, name+" "+string(b))
	return nil, nil
}

// open starts an engine on a socket and returns a copier of its images.
func open(t *testing.T, e *engine, s *store, log io.Writer) *docker.Engine {
	t.Helper()
	path := filepath.Join(hutchtest.Dir(t), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: e}
	go srv.Serve(ln)
	t.Cleanup(func() { srv.Close() })
	t.Setenv("DOCKER_HOST", "unix://"+path)
	c, err := docker.Open(s, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

const label = "sandbox.runner=true"

func TestCopy(t *testing.T) {
	e := &engine{images: `[{"Id":"sha256:aa","RepoTags":["ruby:1","ruby:latest"]},{"Id":"sha256:bb","RepoTags":["broken:1"]},{"Id":"sha256:cc","RepoTags":null}]`}
	s := &store{refused: "broken"}
	c := open(t, e, s, io.Discard)
	for range 2 {
		if err := c.Copy(t.Context(), label); err == nil || !strings.Contains(err.Error(), "not an archive") {
			t.Errorf("an archive that is none: %v", err)
		}
	}
	want := []string{
		"docker.engine.internal/image:aa archive of ruby:1,ruby:latest",
		"docker.engine.internal/image:cc archive of sha256:cc",
	}
	if !slices.Equal(s.loaded, want) {
		t.Errorf("copied %q, want %q", s.loaded, want)
	}
	if e.saved != 3 { // each image once: the image that cannot be copied is not tried again soon
		t.Errorf("%d archives were read", e.saved)
	}
}

// TestNoDocker: an invalid address is refused. An engine that does not answer is logged once, and asked again.
func TestNoDocker(t *testing.T) {
	t.Setenv("DOCKER_HOST", "nonsense")
	if _, err := docker.Open(nil, nil); hutch.KindOf(err) != hutch.Invalid || !strings.Contains(err.Error(), "DOCKER_HOST") {
		t.Errorf("an address that is none: %v", err)
	}
	t.Setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c, err := docker.Open(&store{}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c.Follow(ctx, label)
		if n := strings.Count(log.String(), "could not be copied"); n != 1 {
			t.Errorf("the failure was logged %d times: %s", n, log.String())
		}
	})
}
