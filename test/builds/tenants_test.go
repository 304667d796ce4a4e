package builds

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"testing"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/hutchtest/server"
)

// tenant returns the bed with a client that uses a new token.
func (b *bed) tenant(t *testing.T, req hutch.TokenRequest) *bed {
	t.Helper()
	token, err := b.CreateToken(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	process := *b.Process
	process.Client = client.New(b.URL, token.Secret)
	return &bed{Process: &process, data: b.data, runtime: b.runtime}
}

// The limits of a token hold for the commands of its builds. A build never uses a cached step of another owner.
func TestTenants(t *testing.T) {
	b := newShellBed(t, "gvisor")
	ceiling := hutch.Network{Mode: hutch.NetworkAllowList, Allow: hutch.Rules("example.com")}
	ada := b.tenant(t, hutch.TokenRequest{Name: "ada", Network: &ceiling, Limits: hutch.TokenLimits{Sandboxes: 1}})
	eve := b.tenant(t, hutch.TokenRequest{Name: "eve"})

	copies := hutch.BuildRequest{Dockerfile: "FROM scratch\nCOPY a /a"}
	for _, who := range []*bed{ada, eve} {
		if o, err := who.build(t, copies, files("a", "1")); err != nil || o.did()["COPY a /a"] != hutch.BuildDone {
			t.Errorf("the first build of an owner: %v, %v", o.did(), err)
		}
	}
	if o, err := ada.build(t, copies, files("a", "1")); err != nil || o.did()["COPY a /a"] != hutch.BuildCached {
		t.Errorf("the second: %v, %v", o.did(), err)
	}

	run := hutch.BuildRequest{Dockerfile: "FROM localhost/shell\nRUN echo ready && sleep 2", Limits: hutch.Limits{Memory: 100}}
	run.Network = hutch.Network{Mode: hutch.NetworkOpen}
	if _, err := ada.build(t, run, nil); !errors.Is(err, hutch.Denied) {
		t.Errorf("more of the network than the token may have: %v", err)
	}
	run.Network = hutch.Network{}
	looked := false
	_, err := ada.BuildImage(t.Context(), run, pack(t, nil), func(e hutch.BuildEvent) error {
		if e.State == hutch.BuildLog && e.Text == "ready" {
			looked = true
			ada.duringRun(t, ceiling)
			if list, err := eve.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(list) != 0 {
				t.Errorf("another owner sees %+v, %v", list, err)
			}
		}
		return nil
	})
	if err != nil || !looked {
		t.Errorf("the build: %v, %v", looked, err)
	}
	ada.clean(t)
}

// duringRun checks the sandbox in which a command of the build runs.
func (b *bed) duringRun(t *testing.T, ceiling hutch.Network) {
	list, err := b.Sandboxes(t.Context(), hutch.Filter{})
	if err != nil || len(list) != 1 {
		t.Fatalf("the sandboxes are %+v, %v", list, err)
	}
	n := list[0].Network
	if n.Mode == hutch.NetworkOpen || len(n.Allow) > 1 || len(n.Allow) == 1 && n.Allow[0] != ceiling.Allow[0] || list[0].Limits.Memory != 100 {
		t.Errorf("its sandbox has %+v, %+v", n, list[0].Limits)
	}
	if _, err := b.Create(t.Context(), hutch.CreateRequest{Image: shell}); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("it does not count as one of the token's: %v", err)
	}
}

// A build ends when its client disconnects, even if the client did not ask for events.
func TestClientGoes(t *testing.T) {
	b := newShellBed(t, "gvisor")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- b.post(ctx, `{"dockerfile": "FROM localhost/shell\nRUN sleep 1000"}`, pack(t, files("a", "1")))
	}()
	b.until(t, 1)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the build: %v", err)
	}
	b.until(t, 0)
}

// post requests a build over plain HTTP, without the client.
func (b *bed) post(ctx context.Context, request string, files io.Reader) error {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	form.WriteField("request", request)
	part, err := form.CreateFormFile("context", "context.tar")
	if err == nil {
		_, err = io.Copy(part, files)
	}
	if err := errors.Join(err, form.Close()); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", b.URL+"/v1/images/build", &body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+server.Token)
	req.Header.Set("Content-Type", form.FormDataContentType())
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
	}
	return err
}

// until waits until there are want sandboxes.
func (b *bed) until(t *testing.T, want int) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		list, err := b.Sandboxes(t.Context(), hutch.Filter{})
		if err == nil && len(list) == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("there are %+v, %v", list, err)
		}
	}
}
