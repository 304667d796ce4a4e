package e2b

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"hutch"
)

// allImages has the verbs that no test here needs.
type allImages = hutch.Images

// fakeImages records builds of Dockerfiles without running them.
type fakeImages struct {
	allImages
	requests []hutch.BuildRequest
	context  []string // names in the context of the last build
	fail     error
	events   []hutch.BuildEvent
	block    chan struct{} // when set, a build continues until it is closed
}

func (f *fakeImages) Image(context.Context, string) (hutch.Image, error) {
	return hutch.Image{ID: "sha256:abc", Config: hutch.ImageConfig{User: "user"}}, nil
}

func (f *fakeImages) BuildImage(ctx context.Context, req hutch.BuildRequest, files io.Reader, progress func(hutch.BuildEvent) error) (hutch.Image, error) {
	f.requests, f.context = append(f.requests, req), nil
	for in := tar.NewReader(files); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return hutch.Image{}, err
		}
		f.context = append(f.context, h.Name)
	}
	for _, e := range f.events {
		progress(e)
	}
	if f.block != nil {
		select {
		case <-f.block:
		case <-ctx.Done():
			return hutch.Image{}, context.Cause(ctx)
		}
	}
	return hutch.Image{ID: "sha256:abc"}, f.fail
}

func openBuilds(t *testing.T) (scene, *fakeImages) {
	t.Helper()
	s, images := open(t), &fakeImages{}
	s.opt.Images, s.opt.Uploads = images, t.TempDir()
	s.uploads = newUploads(s.opt.Uploads)
	t.Cleanup(s.Close)
	return s, images
}

// build starts a build and returns how it ended.
func (s scene) build(name, start string) map[string]any {
	s.t.Helper()
	made := s.want(202, "POST", "/v3/templates", `{"name":"`+name+`","cpuCount":2,"memoryMB":1024}`)
	at := "/templates/" + made["templateID"].(string) + "/builds/" + made["buildID"].(string)
	if got := s.want(200, "GET", at+"/status", ""); got["status"] != buildWaiting {
		s.t.Errorf("before the start: %v", got)
	}
	s.want(202, "POST", "/v2"+at, start)
	return s.end(at)
}

func (s scene) end(at string) map[string]any {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if got := s.want(200, "GET", at+"/status?logsOffset=0", ""); got["status"] != buildRunning {
			return got
		}
	}
	s.t.Fatal("the build does not end")
	return nil
}

func TestBuild(t *testing.T) {
	t.Parallel()
	s, images := openBuilds(t)
	images.events = []hutch.BuildEvent{
		{State: hutch.BuildStarted, Name: "[1/3] FROM debian:13"}, {State: hutch.BuildStarted, Name: "[2/3] RUN x"}, {State: hutch.BuildStarted, Name: "[3/3] WORKDIR /home/user"},
		{State: hutch.BuildStarted, Name: "[4/4] RUN y"}, {State: hutch.BuildLog, Text: "one\ntwo\r\n"},
	}
	got := s.build("web:v1", `{"fromImage":"debian:13","force":true,"startCmd":"serve it","readyCmd":"test -f x","steps":[{"type":"RUN","args":["make"],"force":false}]}`)
	if got["status"] != buildReady {
		t.Fatalf("%v", got)
	}
	text, _ := json.Marshal(got["logEntries"])
	if !strings.Contains(string(text), `"message":"two","step":"1"`) || !strings.Contains(string(text), `"message":"RUN make","step":"1"`) {
		t.Errorf("%s", text)
	}
	req := images.requests[0]
	if !req.NoCache || req.Limits.CPU != 2 || req.Limits.Memory != 1024 || !strings.HasPrefix(req.Dockerfile, "FROM debian:13\n") || !strings.Contains(req.Dockerfile, `"make"`) {
		t.Errorf("%+v", req)
	}
	all, _ := s.svc.Snapshots(t.Context())
	if len(all) != 1 || all[0].Name != "web:v1" || all[0].Template.Ready == nil || !strings.Contains(all[0].Template.Start, "'serve it'") || all[0].Template.Labels[labelBuild] != got["buildID"] {
		t.Fatalf("%+v", all)
	}

	// Another template starts from the first one: its user exists already, and the build uses the cache.
	if got := s.build("more", `{"fromTemplate":"web:v1","steps":[]}`); got["status"] != buildReady {
		t.Fatalf("%v", got)
	}
	if req := images.requests[1]; req.NoCache || !strings.HasPrefix(req.Dockerfile, "FROM localhost/e2b@sha256:") || strings.Contains(req.Dockerfile, "useradd") {
		t.Errorf("%+v", req)
	}
	s.want(200, "GET", "/templates/aliases/web", "")
	s.create(`{"templateID":"web:v1"}`)
	if made := s.svc.Created(); made[0].Template != "web:v1" {
		t.Errorf("%+v", made)
	}
}

func TestTags(t *testing.T) {
	t.Parallel()
	s, _ := openBuilds(t)
	made := s.build("web:v1", `{"steps":[]}`)
	got := s.want(201, "POST", "/templates/tags", `{"target":"web:v1","tags":["stable","latest"]}`)
	if got["buildID"] != made["buildID"] {
		t.Errorf("%v", got)
	}
	w := s.ask("GET", "/templates/web/tags", "")
	var list []tagged
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	var names []string
	for _, x := range list {
		names = append(names, x.Tag)
		if x.BuildID != made["buildID"] {
			t.Errorf("%+v", x)
		}
	}
	if slices.Sort(names); !slices.Equal(names, []string{"default", "stable", "v1"}) {
		t.Errorf("%v", names)
	}
	if all, err := s.svc.Snapshots(t.Context()); err != nil || len(all) != 1 || !slices.Equal(all[0].Names, []string{"web:v1", "web:stable", "web"}) {
		t.Errorf("tags are names of one template: %+v %v", all, err)
	}
	for _, bad := range []string{`["" ]`, `[":x"]`, `["web:"]`, `["A"]`, `[]`} {
		s.want(400, "POST", "/templates/tags", `{"target":"web:v1","tags":`+bad+`}`)
	}
	s.want(404, "POST", "/templates/tags", `{"target":"web:v2","tags":["x"]}`)
	s.want(404, "POST", "/templates/tags", `{"target":"other","tags":["x"]}`)
	s.want(204, "DELETE", "/templates/tags", `{"name":"web","tags":["stable"]}`)
	s.want(404, "DELETE", "/templates/tags", `{"name":"web","tags":["stable"]}`)
	if w := s.ask("GET", "/templates", ""); !strings.Contains(w.Body.String(), `"templateID":"web"`) || strings.Count(w.Body.String(), "templateID") != 1 {
		t.Errorf("%s", w.Body)
	}
	s.want(204, "DELETE", "/templates/web", "")
	s.want(404, "GET", "/templates/aliases/web", "")
	s.want(404, "GET", "/templates/web/tags", "")
}

// A client that knows the id of a build starts exactly that build, as long as it has a tag.
func TestSandboxOfBuild(t *testing.T) {
	t.Parallel()
	s, _ := openBuilds(t)
	build := s.build("web:v1", `{"steps":[]}`)["buildID"].(string)
	later := s.build("web:v2", `{"steps":[]}`)["buildID"].(string)
	s.build("other", `{"steps":[]}`)
	all, err := s.svc.Snapshots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	idOf := func(build string) string {
		return all[slices.IndexFunc(all, func(x hutch.Snapshot) bool { return x.Template.Labels[labelBuild] == build })].ID
	}
	for _, id := range []string{build, later} {
		s.create(`{"templateID":"web:` + id + `"}`)
		if made := s.svc.Created(); made[len(made)-1].Template != idOf(id) || made[len(made)-1].Image != "" {
			t.Errorf("%s: %+v", id, made[len(made)-1])
		}
		s.want(404, "POST", "/v2/sandboxes", `{"templateID":"other:`+id+`"}`)
	}
	for _, name := range []string{"web:v1", "web:" + build} {
		if got := s.want(200, "GET", "/templates/aliases/"+name, ""); got["templateID"] != "web" {
			t.Errorf("the id of a template is its name: %v", got)
		}
	}
	if got := s.build("more", `{"fromTemplate":"web:`+build+`"}`); got["status"] != buildReady {
		t.Errorf("%v", got)
	}
	s.want(204, "DELETE", "/templates/tags", `{"name":"web","tags":["v1"]}`)
	s.want(404, "POST", "/v2/sandboxes", `{"templateID":"web:`+build+`"}`)
	s.create(`{"templateID":"web:` + later + `"}`)
}

// A minimum of free disk is the disk limit of the template's sandboxes, and not of its build.
func TestBuildDisk(t *testing.T) {
	t.Parallel()
	s, images := openBuilds(t)
	for body, want := range map[string]int{`"minFreeDiskMb":3000`: 3000, `"minFreeDiskMb":0`: 0, `"cpuCount":1`: 0} {
		made := s.want(202, "POST", "/v3/templates", `{"name":"web",`+body+`}`)
		at := "/templates/web/builds/" + made["buildID"].(string)
		s.want(202, "POST", "/v2"+at, `{"steps":[]}`)
		if got := s.end(at); got["status"] != buildReady {
			t.Fatalf("%v", got)
		}
		all, err := s.svc.Snapshots(t.Context())
		if i := slices.IndexFunc(all, func(x hutch.Snapshot) bool { return x.Template.Labels[labelBuild] == made["buildID"] }); err != nil || i < 0 || all[i].Limits.Disk != want {
			t.Errorf("%s: %+v %v", body, all, err)
		}
	}
	for _, req := range images.requests {
		if req.Limits.Disk != 0 {
			t.Errorf("%+v", req)
		}
	}
	s.want(400, "POST", "/v3/templates", `{"name":"web","minFreeDiskMb":-1}`)
}

// The files of a COPY go to a signed address, without a key.
func TestUploads(t *testing.T) {
	t.Parallel()
	s, images := openBuilds(t)
	hash := strings.Repeat("ab", 32)
	s.want(404, "GET", "/templates/web/files/"+hash, "")
	made := s.want(202, "POST", "/v3/templates", `{"name":"web"}`)
	s.want(400, "GET", "/templates/web/files/x", "")
	link := s.want(201, "GET", "/templates/web/files/"+hash, "")
	if link["present"] != false {
		t.Errorf("%v", link)
	}
	url := link["url"].(string)
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "a.txt", Size: 1, Mode: 0o600})
	tw.Write([]byte("a"))
	tw.Close()
	for name, bad := range map[string]string{
		"another hash": strings.Replace(url, hash, strings.Repeat("cd", 32), 1), "another owner": strings.Replace(url, "owner=", "owner=61", 1),
		"another time": strings.Replace(url, "expires=", "expires=9", 1), "another template": strings.Replace(url, "/web/", "/wab/", 1),
		"no signature":             url[:strings.Index(url, "?")],
		"the past":                 "http://localhost/e2b/templates/web/files/" + hash + "?owner=&expires=1&signature=" + s.uploadSignature("", "web", hash, "1"),
		"an owner without a token": "http://localhost/e2b/templates/web/files/" + hash + "?owner=61&expires=99999999999&signature=" + s.uploadSignature("a", "web", hash, "99999999999"),
	} {
		if w := s.send("PUT", bad, b.String()); w.Code != 401 {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	s.want(404, "PUT", "/templates/web/files/"+hash, b.String())
	if w := s.send("PUT", url, b.String()); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w := s.send("GET", url, ""); w.Code != 401 {
		t.Errorf("a signed address opens more: %d %s", w.Code, w.Body)
	}
	if link := s.want(201, "GET", "/templates/web/files/"+hash, ""); link["present"] != true {
		t.Errorf("%v", link)
	}
	at := "/templates/web/builds/" + made["buildID"].(string)
	s.want(202, "POST", "/v2"+at, `{"steps":[{"type":"COPY","args":["a.txt","/b.txt","",""],"filesHash":"`+hash+`","forceUpload":true,"resolveSymlinks":null}]}`)
	if got := s.end(at); got["status"] != buildReady || !slices.Equal(images.context, []string{"c0/", "c0/a.txt"}) {
		t.Errorf("%v %v", got, images.context)
	}
	s.want(409, "POST", "/v2"+at, `{}`)
	s.want(404, "GET", "/templates/web/files/"+hash, "") // no build waits any more
}

// Archives that arrive at the same time share the limit of their owner, and old archives are removed automatically.
func TestUploadsAreBounded(t *testing.T) {
	t.Parallel()
	u := newUploads(t.TempDir())
	u.most = 1 << 20
	part := strings.Repeat("x", 700<<10)
	in, out := io.Pipe()
	first := make(chan error, 1)
	go func() { first <- u.put("ada", "web", "one", in) }()
	io.WriteString(out, part)
	io.WriteString(out, "x") // it is read after all of part has been charged
	for range 2 {
		if err := u.put("ada", "web", "two", strings.NewReader(part)); hutch.KindOf(err) != hutch.Exhausted {
			t.Errorf("while another one arrives: %v", err)
		}
	}
	if err := u.put("eve", "web", "two", strings.NewReader(part)); err != nil {
		t.Errorf("another owner's: %v", err)
	}
	out.Close()
	if err := <-first; err != nil || !u.has("ada", "web", "one") || u.has("ada", "web", "two") {
		t.Error(err)
	}
	in, out = io.Pipe()
	go func() { io.WriteString(out, "half"); out.CloseWithError(io.ErrUnexpectedEOF) }()
	if err := u.put("bob", "web", "half", in); hutch.KindOf(err) != hutch.Invalid || u.has("bob", "web", "half") {
		t.Errorf("half of an archive: %v", err)
	}
	if left, _ := os.ReadDir(u.dir); len(left) != 2 || len(u.used) != 2 {
		t.Errorf("%d files, and bytes of %v", len(left), u.used)
	}
	u.clear()

	old := newUploads(t.TempDir())
	old.kept = 20 * time.Millisecond
	if err := old.put("ada", "web", "one", strings.NewReader(part)); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if left, _ := os.ReadDir(old.dir); len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("an old archive stays")
		}
	}
}

// A build that fails says where and why, in the words that E2B's clients show.
func TestFailedBuild(t *testing.T) {
	t.Parallel()
	s, images := openBuilds(t)
	images.events = []hutch.BuildEvent{{State: hutch.BuildStarted, Name: "[1/2] RUN useradd"}, {State: hutch.BuildStarted, Name: "[2/2] RUN whoami"}}
	const start = `{"fromImage":"x","steps":[{"type":"RUN","args":["whoami","nobody1"]}]}`
	for want, fail := range map[string]error{
		"failed to run command 'whoami': command failed: exit status 3":                                hutch.Errorf(hutch.Invalid, "no").With("exitCode", 3),
		"failed to run command 'whoami': command failed: unauthenticated: invalid username: 'nobody1'": hutch.Errorf(hutch.Invalid, "no").Naming(hutch.AboutField, "user"),
		"full": hutch.Errorf(hutch.Exhausted, "full"),
	} {
		images.fail = fail
		got := s.build("web", start)
		reason, _ := got["reason"].(map[string]any)
		if got["status"] != buildFailed || reason["message"] != want || reason["step"] != "1" {
			t.Errorf("%v", got)
		}
	}
	if got := s.build("web", `{"steps":[{"type":"ADD"}]}`); got["status"] != buildFailed {
		t.Errorf("%v", got)
	}
	if got := s.build("web", `{"fromTemplate":"none"}`); got["status"] != buildFailed {
		t.Errorf("%v", got)
	}
	if all, _ := s.svc.Snapshots(t.Context()); len(all) > 0 {
		t.Errorf("left behind: %+v", all)
	}
	made := s.want(202, "POST", "/v3/templates", `{"name":"web"}`)
	at := "/v2/templates/web/builds/" + made["buildID"].(string)
	for want, body := range map[int]string{501: `{"fromImageRegistry":{"type":"aws","awsRegion":"x"}}`, 400: `{"fromImage":"a b"}`} {
		s.want(want, "POST", at, body)
	}
	s.want(501, "POST", at, `{"steps":[{"type":"RUN","gpu":1}]}`)
	for _, bad := range []string{`{"name":""}`, `{"name":"a b"}`, `{"name":"a:B"}`, `{"name":"a","tags":["b c"]}`, `{"name":"a:"}`} {
		s.want(400, "POST", "/v3/templates", bad)
	}
}

// An owner can have a limited number of builds at once, and they end when the server closes.
func TestBuildsAreBounded(t *testing.T) {
	t.Parallel()
	s, images := openBuilds(t)
	images.block = make(chan struct{})
	made := s.want(202, "POST", "/v3/templates", `{"name":"web"}`)
	at := "/templates/web/builds/" + made["buildID"].(string)
	s.want(202, "POST", "/v2"+at, `{}`)
	for range maxBuilds - 1 {
		s.want(202, "POST", "/v3/templates", `{"name":"web"}`)
	}
	s.want(429, "POST", "/v3/templates", `{"name":"web"}`)
	s.Close()
	if got := s.end(at); got["status"] != buildFailed || !strings.Contains(got["reason"].(map[string]any)["message"].(string), "shutting down") {
		t.Errorf("%v", got)
	}
	s.want(202, "POST", "/v3/templates", `{"name":"web"}`) // the build that has ended is forgotten
	s.want(429, "POST", "/v3/templates", `{"name":"web"}`)
	s.builds.all[0].since = time.Now().Add(-waitingLong - time.Second)
	gone := s.builds.all[0].id
	s.want(202, "POST", "/v3/templates", `{"name":"web"}`) // a build that was not started for a long time is forgotten
	s.want(404, "GET", "/templates/web/builds/"+gone+"/status", "")
}

// If a template that the administrator shares has the same name as one of the caller's own templates, the name means
// the caller's own. Only the administrator can delete the shared template.
func TestSharedTemplates(t *testing.T) {
	t.Parallel()
	s, _ := openBuilds(t)
	shared := func(name string) hutch.Snapshot {
		return hutch.Snapshot{ID: "snap-of-admin-" + strings.ReplaceAll(name, ":", "-"), Name: name, Names: []string{name}, Owner: "admin", Shared: true, Template: &hutch.Template{}}
	}
	listed := &sharing{Service: s.svc, shared: []hutch.Snapshot{shared("web"), shared("web:v1"), shared("admins")}}
	s.Server.svc = listed
	s.build("web", `{"steps":[]}`)
	s.want(201, "POST", "/templates/tags", `{"target":"web","tags":["stable"]}`)
	if text := s.ask("GET", "/templates/web/tags", "").Body.String(); strings.Count(text, `"tag":"default"`) != 1 || !strings.Contains(text, `"tag":"v1"`) {
		t.Errorf("%s", text)
	}
	if got := s.build("more", `{"fromTemplate":"web"}`); got["status"] != buildReady { // the shared one was built by other means
		t.Errorf("%v", got)
	}
	s.want(204, "DELETE", "/templates/tags", `{"name":"web","tags":["default"]}`)
	s.want(403, "DELETE", "/templates/tags", `{"name":"web","tags":["v1"]}`)
	s.want(204, "DELETE", "/templates/web", "")
	s.want(403, "DELETE", "/templates/admins", "")
	s.want(201, "POST", "/templates/tags", `{"target":"admins","tags":["mine"]}`) // a template of the caller's
	if own, _ := s.svc.Snapshots(t.Context()); len(own) != 2 || own[1].Name != "admins:mine" {
		t.Errorf("%+v", own)
	}
	s.want(204, "DELETE", "/templates/tags", `{"name":"admins","tags":["mine"]}`)
	own, _ := s.svc.Snapshots(t.Context())
	if len(own) != 1 || own[0].Name != "more" {
		t.Errorf("%+v", own)
	}
}

// sharing is a service that also lists snapshots of an administrator. Only the administrator can delete these.
type sharing struct {
	hutch.Service
	shared []hutch.Snapshot
}

func (s *sharing) Snapshots(ctx context.Context) ([]hutch.Snapshot, error) {
	own, err := s.Service.Snapshots(ctx)
	return append(slices.Clone(s.shared), own...), err
}

func (s *sharing) DeleteSnapshot(ctx context.Context, id string) error {
	own, _ := s.Service.Snapshots(ctx)
	is := func(x hutch.Snapshot) bool { return x.IsCalled(id) }
	if !slices.ContainsFunc(own, is) && slices.ContainsFunc(s.shared, is) {
		return hutch.Errorf(hutch.Denied, "only its owner deletes it")
	}
	return s.Service.DeleteSnapshot(ctx, id)
}

// The log of a build is bounded, and a client gets one page of it.
func TestBuildLogs(t *testing.T) {
	t.Parallel()
	b := &build{}
	for range 3 * maxBuildLog / maxMessage {
		b.say("info", "1", strings.Repeat("x", 2*maxMessage))
	}
	if b.size > maxBuildLog+maxMessage || !strings.Contains(b.logs[len(b.logs)-1].Message, "too much") {
		t.Errorf("%d bytes, last %q", b.size, b.logs[len(b.logs)-1].Message)
	}
	for query, want := range map[string]string{"": "0 100 0", "?logsOffset=7&limit=3&level=warn": "7 3 2", "?limit=1000": "0 100 0"} {
		r := httptest.NewRequest(http.MethodGet, "/"+query, nil)
		offset, limit, level, err := logQuery(r)
		if got := strings.Trim(strings.Join(strings.Fields(string(mustJSON([]int{offset, limit, level}))), ""), "[]"); strings.ReplaceAll(got, ",", " ") != want || err != nil {
			t.Errorf("%s: %s %v", query, got, err)
		}
	}
	for _, bad := range []string{"?logsOffset=-1", "?limit=x", "?level=loud"} {
		if _, _, _, err := logQuery(httptest.NewRequest(http.MethodGet, "/"+bad, nil)); hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func mustJSON(v any) []byte {
	text, _ := json.Marshal(v)
	return text
}
