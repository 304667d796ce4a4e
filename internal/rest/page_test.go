package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"hutch"
	"hutch/internal/fakeservice"
	"hutch/internal/rest"
)

func ids(t *testing.T, body string) (ids []string) {
	t.Helper()
	var list []hutch.Sandbox
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, s := range list {
		ids = append(ids, s.ID)
	}
	return ids
}

func TestPages(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{}
	b := serve(t, svc, rest.Options{})
	want := []string{"s"}
	for i := range 9 {
		id := fmt.Sprintf("s%d", i)
		if _, err := svc.Create(t.Context(), hutch.CreateRequest{ID: id, Labels: map[string]string{"odd": fmt.Sprint(i % 2)}}); err != nil {
			t.Fatal(err)
		}
		want = append(want, id)
	}
	var got []string
	next := "/v1/sandboxes?limit=3"
	for pages := 1; next != ""; pages++ {
		resp, body := b.call(t, "GET", next, "")
		page := ids(t, body)
		got = append(got, page...)
		next = ""
		if link := resp.Header.Get("Link"); link != "" {
			next, _, _ = strings.Cut(strings.TrimPrefix(link, "<"), ">")
		}
		if len(page) != 3 && next != "" || pages > 4 {
			t.Fatalf("page %d has %q, then %q", pages, page, next)
		}
		// The cursor stays valid when the sandboxes before it are destroyed.
		svc.Destroy(t.Context(), page[len(page)-1], true)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, body := b.call(t, "GET", "/v1/sandboxes?label=odd=1&label=odd=1", ""); !slices.Equal(ids(t, body), []string{"s3", "s5"}) {
		t.Errorf("by label: %s", body)
	}
	for _, query := range []string{"limit=0", "limit=1001", "limit=x", "cursor=x", "cursor=%2e%2e", "label=odd", "label==1", "limit=1&limit=2"} {
		if resp, body := b.call(t, "GET", "/v1/sandboxes?"+query, ""); resp.StatusCode != 400 {
			t.Errorf("%s: %d %s", query, resp.StatusCode, body)
		}
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{}
	b := serve(t, svc, rest.Options{})
	create := func(key, body, token string) (*http.Response, string) {
		return b.call(t, "POST", "/v1/sandboxes", body, "Idempotency-Key", key, "Authorization", token)
	}
	first, one := create("k", `{"labels":{"a":"b"}}`, "Bearer x")
	if first.StatusCode != 200 || first.Header.Get("Idempotency-Replayed") != "" {
		t.Fatalf("%d %s", first.StatusCode, one)
	}
	if resp, again := create("k", ` { "labels" : {"a":"b"} } `, "Bearer x"); again != one || resp.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("again: %v %s, not %s", resp.Header, again, one)
	}
	if resp, body := create("k", `{"labels":{"a":"c"}}`, "Bearer x"); resp.StatusCode != 409 || !strings.Contains(body, "new key") {
		t.Errorf("another request: %d %s", resp.StatusCode, body)
	}
	if _, other := create("k", `{"labels":{"a":"b"}}`, "Bearer y"); other == one {
		t.Error("another caller got the same answer")
	}
	// The answer of a failed create is not kept.
	if resp, _ := create("f", `{"sandboxId":"UPPER"}`, ""); resp.StatusCode != 400 {
		t.Error(resp.Status)
	}
	if resp, body := create("f", `{"sandboxId":"lower"}`, ""); resp.StatusCode != 200 {
		t.Errorf("after a failure: %d %s", resp.StatusCode, body)
	}
	for _, key := range []string{"", strings.Repeat("x", 256), "a b", "ü"} {
		if resp, _ := create(key, "", ""); resp.StatusCode != 400 {
			t.Errorf("key %.20q: %d", key, resp.StatusCode)
		}
	}
}

// slow is a service whose creates take long.
type slow struct {
	*fakeservice.Service
	begun chan struct{}
	end   chan struct{}
}

func (s *slow) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	s.begun <- struct{}{}
	<-s.end
	return s.Service.Create(ctx, req)
}

func TestIdempotencyKeyOfCallsAtOnce(t *testing.T) {
	t.Parallel()
	svc := &slow{&fakeservice.Service{}, make(chan struct{}, 8), make(chan struct{})}
	b := serveAny(t, svc, rest.Options{})
	bodies := make([]string, 8)
	var wg sync.WaitGroup
	for i := range bodies {
		wg.Go(func() { _, bodies[i] = b.call(t, "POST", "/v1/sandboxes", "{}", "Idempotency-Key", "k") })
	}
	<-svc.begun
	close(svc.end)
	wg.Wait()
	for _, body := range bodies {
		if body != bodies[0] {
			t.Errorf("%s, and %s", body, bodies[0])
		}
	}
	if n := len(svc.Created()); n != 1 {
		t.Errorf("%d sandboxes were made", n)
	}
}
