package rest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/fakeservice"
	"hutch/internal/membudget"
	"hutch/internal/rest"
)

type images = hutch.Images

// early reports progress before it reads the context of a build.
type early struct {
	images
	told chan struct{} // closed when the first progress is sent
}

func (e early) BuildImage(_ context.Context, _ hutch.BuildRequest, files io.Reader, progress func(hutch.BuildEvent) error) (hutch.Image, error) {
	if err := progress(hutch.BuildEvent{}); err != nil {
		return hutch.Image{}, err
	}
	close(e.told)
	n, err := io.Copy(io.Discard, files)
	return hutch.Image{ID: fmt.Sprint(n)}, err
}

// TestProgressDuringUpload: a build that reports its progress still gets all of a context that arrives slowly.
func TestProgressDuringUpload(t *testing.T) {
	t.Parallel()
	e := early{told: make(chan struct{})}
	b := serve(t, &fakeservice.Service{}, rest.Options{Images: e})
	const size = 1 << 20
	body, to := io.Pipe()
	go func() {
		io.WriteString(to, "--b\r\nContent-Disposition: form-data; name=\"request\"\r\n\r\n{}\r\n--b\r\nContent-Disposition: form-data; name=\"context\"\r\n\r\n")
		<-e.told
		io.WriteString(to, strings.Repeat("x", size)+"\r\n--b--\r\n")
		to.Close()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", b.URL+"/v1/images/build", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	req.Header.Set("Accept", "text/event-stream")
	resp, err := b.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(got), fmt.Sprintf("%q", fmt.Sprint(size))) {
		t.Errorf("%s %v", got, err)
	}
}

// The request of a build is held in memory, unlike the context after it. So its bytes and its lists are charged.
func TestRequestOfABuildIsCharged(t *testing.T) {
	t.Parallel()
	h := rest.NewHandler(&fakeservice.Service{}, rest.Options{Images: early{}})
	for what, c := range map[string]struct {
		room int
		text string
	}{
		"bytes": {1 << 20, `{"name":"` + strings.Repeat("x", 2<<20) + `"}`},
		"lists": {8 << 20, `{"network":{"allow":[` + strings.Repeat("{},", 100_000) + `{}]}}`},
	} {
		account, free := membudget.New(c.room, c.room).Open("ada")
		body := "--b\r\nContent-Disposition: form-data; name=\"request\"\r\n\r\n" + c.text + "\r\n--b--\r\n"
		r := httptest.NewRequest("POST", "/v1/images/build", strings.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(caller.With(t.Context(), caller.Caller{Budget: account})))
		free()
		if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "memory of requests") {
			t.Errorf("%s: %d %.300s", what, w.Code, w.Body)
		}
	}
	h.Close()
}

// longBuild is a build that continues until it is released.
type longBuild struct {
	images
	began, arrived, release chan struct{}
	ended                   chan error
}

func newLongBuild() longBuild {
	return longBuild{began: make(chan struct{}), arrived: make(chan struct{}), release: make(chan struct{}), ended: make(chan error, 1)}
}

func (s longBuild) BuildImage(ctx context.Context, _ hutch.BuildRequest, files io.Reader, progress func(hutch.BuildEvent) error) (hutch.Image, error) {
	err := progress(hutch.BuildEvent{State: hutch.BuildQueued, Build: "b-1"})
	close(s.began)
	if files != nil && err == nil {
		_, err = io.Copy(io.Discard, files)
	}
	if err == nil {
		close(s.arrived)
		select {
		case <-s.release:
			err = progress(hutch.BuildEvent{Step: 1, State: hutch.BuildLog, Text: strings.Repeat("x", 1<<20)})
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	s.ended <- err
	return hutch.Image{ID: "sha256:abc"}, err
}

const buildForm = "--b\r\nContent-Disposition: form-data; name=\"request\"\r\n\r\n%s\r\n--b\r\nContent-Disposition: form-data; name=\"context\"\r\n\r\nfiles"

// leave sends a build and disconnects: after the whole build has arrived or, if rest is empty, once the build has
// begun.
func leave(t *testing.T, s longBuild, url string, c *http.Client, request, rest string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body, to := io.Pipe()
	go func() {
		fmt.Fprintf(to, buildForm, request)
		if rest != "" {
			io.WriteString(to, rest)
			to.Close()
			return
		}
		<-ctx.Done()
		to.CloseWithError(ctx.Err())
	}()
	req, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/images/build", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	req.Header.Set("Accept", "text/event-stream")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if rest != "" {
		<-s.arrived
	} else {
		<-s.began
	}
	cancel()
	resp.Body.Close()
}

// TestDetachedBuild: a build with detach outlives its client, but only after its context has arrived. A build without
// detach does not.
func TestDetachedBuild(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		request, rest string
		outlives      bool
	}{
		"detached":            {`{"detach":true}`, "\r\n--b--\r\n", true},
		"half of its context": {`{"detach":true}`, "", false},
		"attached":            {`{}`, "\r\n--b--\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLongBuild()
			b := serve(t, &fakeservice.Service{}, rest.Options{Images: s})
			leave(t, s, b.URL, b.Client(), c.request, c.rest)
			if c.outlives {
				time.AfterFunc(200*time.Millisecond, func() { close(s.release) }) // the server has seen the end of the connection
			} else if c.rest != "" {
				time.AfterFunc(20*time.Second, func() { close(s.release) })
			}
			if err := <-s.ended; (err == nil) != c.outlives {
				t.Errorf("the build ended with %v", err)
			}
		})
	}
}

// TestDetachedBuildEndsWithTheServer: the end of the server ends a build whose client has left.
func TestDetachedBuildEndsWithTheServer(t *testing.T) {
	t.Parallel()
	s := newLongBuild()
	h := rest.NewHandler(&fakeservice.Service{}, rest.Options{Images: s})
	srv := httptest.NewServer(h)
	defer srv.Close()
	leave(t, s, srv.URL, srv.Client(), `{"detach":true}`, "\r\n--b--\r\n")
	h.Close()
	if err := <-s.ended; hutch.KindOf(err) != hutch.Unavailable {
		t.Errorf("the build ended with %v", err)
	}
}

// TestDetachedBuildIsCharged: the request of a detached build counts towards its owner's memory budget until the build
// has ended.
func TestDetachedBuildIsCharged(t *testing.T) {
	t.Parallel()
	s := newLongBuild()
	h := rest.NewHandler(&fakeservice.Service{}, rest.Options{Images: s})
	const size = 1 << 19
	memory := membudget.New(2*size, 2*size)
	account, free := memory.Open("ada")
	ctx, disconnect := context.WithCancel(caller.With(t.Context(), caller.Caller{Budget: account}))
	defer disconnect()
	body := "--b\r\nContent-Disposition: form-data; name=\"request\"\r\n\r\n{\"detach\":true,\"dockerfile\":\"" + strings.Repeat("x", size) + "\"}\r\n--b--\r\n"
	r := httptest.NewRequest("POST", "/v1/images/build", strings.NewReader(body))
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	go func() {
		<-s.began
		disconnect()
	}()
	h.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
	free()
	other, freeOther := memory.Open("ada")
	defer freeOther()
	if other.Take(size) {
		t.Error("the request of a build that runs is not charged")
	}
	close(s.release)
	h.Close() // waits for the build
	if !other.Take(size) {
		t.Error("the request of a build that has ended is still charged")
	}
}

// panicking is a build that panics.
type panicking struct{ images }

func (panicking) BuildImage(context.Context, hutch.BuildRequest, io.Reader, func(hutch.BuildEvent) error) (hutch.Image, error) {
	panic("a test")
}

// TestDetachedBuildThatPanics: a panic in a detached build is an error of this build, and does not end the process.
func TestDetachedBuildThatPanics(t *testing.T) {
	t.Parallel()
	h := rest.NewHandler(&fakeservice.Service{}, rest.Options{Images: panicking{}})
	r := httptest.NewRequest("POST", "/v1/images/build", strings.NewReader("--b\r\nContent-Disposition: form-data; name=\"request\"\r\n\r\n{\"detach\":true}\r\n--b--\r\n"))
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusInternalServerError {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	h.Close()
}

// stalledBuild is a build that is cancelled while its client sends nothing.
type stalledBuild struct {
	images
	ended chan error
}

func (s stalledBuild) BuildImage(_ context.Context, _ hutch.BuildRequest, files io.Reader, _ func(hutch.BuildEvent) error) (hutch.Image, error) {
	time.AfterFunc(100*time.Millisecond, files.(interface{ Interrupt() }).Interrupt)
	_, err := io.Copy(io.Discard, files)
	s.ended <- err
	return hutch.Image{}, err
}

// TestStalledBuildIsInterrupted: the end of a build does not wait for a client that sends nothing more.
func TestStalledBuildIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, request := range []string{`{}`, `{"detach":true}`} {
		s := stalledBuild{ended: make(chan error, 1)}
		b := serve(t, &fakeservice.Service{}, rest.Options{Images: s})
		body, to := io.Pipe()
		go fmt.Fprintf(to, buildForm, request)
		req, err := http.NewRequestWithContext(t.Context(), "POST", b.URL+"/v1/images/build", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		go func() {
			if resp, err := b.Client().Do(req); err == nil {
				resp.Body.Close()
			}
			to.Close()
		}()
		select {
		case err := <-s.ended:
			if err == nil {
				t.Errorf("%s: the context arrived", request)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s: the build still waits for its client", request)
		}
		to.Close()
	}
}
