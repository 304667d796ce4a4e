package coding_test

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/coding"
	"hutch/internal/hutchtest"
	"hutch/internal/membudget"
)

// entry is a member of an archive; missing values are those of a regular file.
type entry struct {
	tar.Header
	content string
}

func file(name, content string) entry {
	return entry{tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg}, content}
}

func link(typ byte, name, target string) entry {
	return entry{tar.Header{Name: name, Mode: 0o777, Typeflag: typ, Linkname: target}, ""}
}

func tarOf(t *testing.T, list ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range list {
		e.Size = int64(len(e.content))
		err := w.WriteHeader(&e.Header)
		if err == nil {
			_, err = io.WriteString(w, e.content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipped(t *testing.T, data io.Reader) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.Copy(w, data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// onArchive returns a request for the scripted agent to work on an archive.
func onArchive(t *testing.T, archive io.Reader, prompt string) hutch.AgentRequest {
	t.Helper()
	return hutch.AgentRequest{Definition: definitionText(t), Prompt: prompt, Archive: archive, Network: hutch.Network{Mode: hutch.NetworkNone}}
}

// noneLeft fails if sandboxes are left. It waits for sandboxes that are still being destroyed.
func noneLeft(t *testing.T, svc hutch.Service) {
	t.Helper()
	var left []hutch.Sandbox
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var err error
		if left, err = svc.Sandboxes(t.Context(), hutch.Filter{Brief: true}); err == nil && len(left) == 0 {
			return
		}
	}
	t.Errorf("%d sandboxes are left", len(left))
}

// TestArchives: an agent works on the files of an archive. Passwords in settings of git, hooks, and a .git that leads elsewhere are not
// in the sandbox; the history is.
func TestArchives(t *testing.T) {
	t.Parallel()
	c, svc := serve(t)
	dir := folder(t)
	packed, err := exec.CommandContext(t.Context(), "tar", "-C", dir, "-c", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	evil := []entry{
		file("a", "one\n"), file(".git/config", "[core]\npassword=hunter2\n"), file(".git/config.lock", "hunter2"), file(".git/hooks/post-commit", "hunter2"),
		file(".git/HEAD", "ref: refs/heads/main\n"), link(tar.TypeSymlink, "sub/.git", "/etc"), file("other/.git", "gitdir: /etc\n"),
		file(".git/modules/m/config", "hunter2"), file(".git/modules/m/hooks/x", "hunter2"), file(".git/worktrees/w/config.worktree", "hunter2"),
		link(tar.TypeSymlink, ".git/modules/out", "/etc"), file(".git/commondir", "../hunter2"),
	}
	var zipArchive bytes.Buffer
	zw := zip.NewWriter(&zipArchive)
	if w, err := zw.Create("a"); err == nil {
		io.WriteString(w, "one\n")
	}
	zw.Close()
	for _, a := range []struct {
		name    string
		archive []byte
		history bool
	}{
		{"of tar", packed, true}, {"compressed", zipped(t, bytes.NewReader(packed)), true}, {"zip", zipArchive.Bytes(), false}, {"with hooks", tarOf(t, evil...), false},
	} {
		t.Run(a.name, func(t *testing.T) {
			res, err := c.RunAgent(t.Context(), onArchive(t, bytes.NewReader(a.archive), "(grep -r hunter2 . ; ls .git/hooks; find . -name .git ! -type d; ls /etc/passwd; git log --oneline | wc -l) 2>&1 >seen; echo two >>a"), nil, nil)
			if err != nil || !res.Success || !strings.Contains(res.Diff, "+two\n") {
				t.Fatalf("%+v, %v", res, err)
			}
			if strings.Contains(res.Diff, "hunter2") || strings.Contains(res.Diff, "post-commit") || !strings.Contains(res.Diff, "/etc/passwd") || strings.Contains(res.Diff, "+./other/.git") || strings.Contains(res.Diff, "+./sub/.git") {
				t.Errorf("the agent sees %s", res.Diff)
			}
			if history := strings.Contains(res.Diff, "+1\n"); history != a.history {
				t.Errorf("history is %v: %s", history, res.Diff)
			}
			if _, err := svc.Destroy(t.Context(), res.SandboxID, true); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHostileArchives: each archive is refused with an error that names its fault, and leaves no sandbox.
func TestHostileArchives(t *testing.T) {
	t.Parallel()
	c, svc := serve(t)
	var header bytes.Buffer
	w := tar.NewWriter(&header)
	w.WriteHeader(&tar.Header{Name: "zeros", Size: 190 << 20, Mode: 0o644, Typeflag: tar.TypeReg})
	bomb := zipped(t, io.MultiReader(&header, io.LimitReader(bytesOf{}, 200<<20))) // unpacks to much more than the disk holds
	whole := tarOf(t, file("a", strings.Repeat("x", 100_000)))
	for name, archive := range map[string][]byte{
		"parent":             tarOf(t, file("../escaped", "x")),
		"parent within":      tarOf(t, file("a/../../escaped", "x")),
		"absolute":           tarOf(t, file("/workspace/escaped", "x")),
		"through a link":     tarOf(t, link(tar.TypeSymlink, "out", "/workspace"), file("out/escaped", "x")),
		"through a link up":  tarOf(t, link(tar.TypeSymlink, "out", ".."), file("out/escaped", "x")),
		"hard link out":      tarOf(t, link(tar.TypeLink, "stolen", "/etc/passwd")),
		"hard link up":       tarOf(t, link(tar.TypeLink, "stolen", "../../etc/passwd")),
		"device":             tarOf(t, link(tar.TypeChar, "null", "")),
		"bomb":               bomb,
		"cut off":            whole[:60_000],
		"cut off compressed": zipped(t, bytes.NewReader(whole))[:100],
		"no archive":         []byte("#!/bin/sh\necho this is no archive\n" + strings.Repeat("x", 2000)),
		"nothing":            {},
		"broken zip":         []byte("PK\x03\x04 and no zip"),
	} {
		t.Run(name, func(t *testing.T) {
			req := onArchive(t, bytes.NewReader(archive), "ls -a .. /workspace; ls; cat stolen 2>&1 | head -c 100; true")
			req.Limits = hutch.Limits{Disk: 64}
			res, err := c.RunAgent(t.Context(), req, nil, nil)
			if err == nil { // leaving out the bad entry silently is not enough
				t.Errorf("it was accepted: %+v", res)
				svc.Destroy(t.Context(), res.SandboxID, true)
				return
			}
			if kind := hutch.KindOf(err); kind != hutch.Invalid && kind != hutch.Denied && kind != hutch.Exhausted && kind != hutch.Conflict && kind != hutch.Unsupported || err.Error() == "" {
				t.Errorf("%v: %v", kind, err)
			}
			noneLeft(t, svc)
		})
	}
}

// bytesOf is an endless reader of zeros.
type bytesOf struct{}

func (bytesOf) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// formed returns a form with the given parts, and its content type.
func formed(parts ...[2]string) (io.Reader, string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, p := range parts {
		w.WriteField(p[0], p[1])
	}
	w.Close()
	return &b, w.FormDataContentType()
}

// TestBadForms: each form is refused with an error that names its fault, and leaves no sandbox.
func TestBadForms(t *testing.T) {
	t.Parallel()
	svc := cloning{service{Service: hutchtest.Engine(t, "native", nil)}}
	h := coding.NewHandler(svc)
	request := func(more string) [2]string {
		return [2]string{"request", fmt.Sprintf(`{"definition":%q,"prompt":"true"%s}`, definitionText(t), more)}
	}
	archive := [2]string{"archive", string(tarOf(t, file("a", "x")))}
	for _, c := range []struct {
		name, path string
		parts      [][2]string
		word       string
	}{
		{"nothing", "/agents", nil, "first part"},
		{"no archive", "/agents", [][2]string{request("")}, "no part archive"},
		{"wrong order", "/agents", [][2]string{archive, request("")}, "first part"},
		{"another part", "/agents", [][2]string{request(""), {"context", "x"}}, "after request comes archive"},
		{"no JSON", "/agents", [][2]string{{"request", "x"}, archive}, "JSON"},
		{"unknown field", "/agents", [][2]string{request(`,"sudo":true`), archive}, "sudo"},
		{"large request", "/agents", [][2]string{{"request", strings.Repeat(" ", 9<<20)}, archive}, "larger than 8 MiB"},
		{"repository too", "/agents", [][2]string{request(`,"repository":{"url":"https://example.com/x.git"}`), archive}, "give one"},
		{"branch", "/agents", [][2]string{request(`,"repository":{"branch":"x"}`), archive}, "give one"},
		{"tries of one", "/agents", [][2]string{request(`,"tries":2`), archive}, "/agents/tries"},
		{"no tries", "/agents/tries", [][2]string{request(""), archive}, "tries is 0"},
		{"tries 0", "/agents/tries", [][2]string{request(`,"tries":0`), archive}, "tries is 0"},
		{"tries -1", "/agents/tries", [][2]string{request(`,"tries":-1`), archive}, "tries is -1"},
		{"tries 1000", "/agents/tries", [][2]string{request(`,"tries":1000`), archive}, "1 to 16"},
		{"tries 1.5", "/agents/tries", [][2]string{request(`,"tries":1.5`), archive}, "cannot be the number 1.5: give a whole number"},
	} {
		body, kind := formed(c.parts...)
		r := httptest.NewRequest("POST", c.path, body)
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), c.word) {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
	}
	r := httptest.NewRequest("POST", "/agents", strings.NewReader("x"))
	r.Header.Set("Content-Type", "multipart/form-data")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "boundary") {
		t.Errorf("no boundary: %d %s", w.Code, w.Body)
	}
	noneLeft(t, svc)
}

// TestRequestInAFormIsCharged: the JSON part of a form is held in memory, unlike the archive after it, so it is
// charged.
func TestRequestInAFormIsCharged(t *testing.T) {
	t.Parallel()
	body, kind := formed([2]string{"request", `{"prompt":"` + strings.Repeat("x", 2<<20) + `"}`}, [2]string{"archive", "x"})
	account, free := membudget.New(1<<20, 1<<20).Open("ada")
	defer free()
	r := httptest.NewRequest("POST", "/agents", body)
	r.Header.Set("Content-Type", kind)
	w := httptest.NewRecorder()
	coding.NewHandler(service{}).ServeHTTP(w, r.WithContext(caller.With(t.Context(), caller.Caller{Budget: account})))
	if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "memory of requests") {
		t.Errorf("%d %.300s", w.Code, w.Body)
	}
}

// TestRefusedOnOneConnection: after a form is refused before its end, its connection serves the next request. It once
// did not: net/http read the rest of such a body after the handler, and then could not read the next request.
func TestRefusedOnOneConnection(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	srv := httptest.NewUnstartedServer(coding.NewHandler(service{}))
	srv.Config.ErrorLog = log.New(&said, "", 0)
	srv.Start()
	body, kind := formed([2]string{"request", "x"}, [2]string{"archive", strings.Repeat("x", 20_000)})
	form, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("POST /agents HTTP/1.1\r\nHost: h\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", kind, len(form), form)
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answers := bufio.NewReader(c)
	for i := range 20 {
		head := len(text) - 10_000 // the rest follows after the request is answered
		io.WriteString(c, text[:head])
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		io.WriteString(c, text[head:])
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusBadRequest || resp.Close {
			t.Fatalf("request %d: %s, %v", i, resp.Status, err)
		}
	}
	c.Close()
	srv.Close()
	if said.Len() > 0 {
		t.Errorf("the server says %s", &said)
	}
}

// TestSlowArchive: comments in the answer, which keep the connection alive, do not cut off an archive that is still coming.
func TestSlowArchive(t *testing.T) {
	t.Parallel()
	svc := cloning{service{Service: hutchtest.Engine(t, "native", nil)}}
	srv := httptest.NewServer(coding.NewHandlerThatPings(svc, 10*time.Millisecond))
	t.Cleanup(srv.Close)
	archive := tarOf(t, file("a", strings.Repeat("x", 600_000)), file("b", "the last\n"))
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	answered := make(chan struct{})
	wrote := make(chan error, 1)
	go func() {
		err := form.WriteField("request", fmt.Sprintf(`{"definition":%q,"prompt":"echo two >>b","network":{"mode":"none"}}`, definitionText(t)))
		part, perr := form.CreateFormFile("archive", "archive.tar")
		if err = errors.Join(err, perr); err == nil {
			_, err = part.Write(archive[:1000])
			<-answered // the first comment has arrived
			_, werr := part.Write(archive[1000:])
			err = errors.Join(err, werr, form.Close())
		}
		w.CloseWithError(err)
		wrote <- err
	}()
	req, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL+"/agents", r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	req.Header.Set("Accept", "text/event-stream")
	resp, err := srv.Client().Do(req) // returns with the first comment
	close(answered)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if werr := <-wrote; err != nil || werr != nil || !strings.Contains(string(all), "event: end") || !strings.Contains(string(all), `+two\n`) {
		t.Errorf("%.2000s, %v, %v", all, err, werr)
	}
}

// TestLeavingWhileItComes: when the client disconnects in the middle of its archive, no sandbox is left.
func TestLeavingWhileItComes(t *testing.T) {
	t.Parallel()
	c, svc := serve(t)
	archive := tarOf(t, file("a", strings.Repeat("x", 10<<20)))
	gone := errors.New("gone")
	for name, call := range map[string]func(context.Context, hutch.AgentRequest) error{
		"one": func(ctx context.Context, req hutch.AgentRequest) error {
			_, err := c.RunAgent(ctx, req, nil, nil)
			return err
		},
		"several": func(ctx context.Context, req hutch.AgentRequest) error {
			req.Tries = 3
			_, err := c.TryAgent(ctx, req, nil, nil)
			return err
		},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		half := io.MultiReader(bytes.NewReader(archive[:1<<20]), leaving{func() { cancel(gone) }, ctx})
		if err := call(ctx, onArchive(t, half, "true")); !errors.Is(err, gone) {
			t.Errorf("%s: %v", name, err)
		}
		noneLeft(t, svc)
		broken := io.MultiReader(bytes.NewReader(archive[:1<<20]), failing{gone})
		if err := call(t.Context(), onArchive(t, broken, "true")); !errors.Is(err, gone) {
			t.Errorf("%s, of what cannot be read: %v", name, err)
		}
		noneLeft(t, svc)
	}
}

// leaving is the part of the body that the client does not send, because it disconnects.
type leaving struct {
	leave func()
	ctx   context.Context
}

func (l leaving) Read([]byte) (int, error) { l.leave(); <-l.ctx.Done(); return 0, context.Cause(l.ctx) }

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
