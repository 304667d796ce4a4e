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
	told chan struct{} // is closed when the first progress is sent
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

// The request of a build is held in memory, unlike the context after it, and so it is charged: its bytes and its lists.
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
