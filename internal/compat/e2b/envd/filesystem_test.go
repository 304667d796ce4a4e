package envd

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/e2b/seam"
)

const fsService = "filesystem.Filesystem/"

func (w *world) write(name, content string) {
	w.Helper()
	p := filepath.Join(w.home, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		w.Fatal(err)
	}
	if err := os.Chmod(p, 0o644); err != nil {
		w.Fatal(err)
	}
}

func TestStat(t *testing.T) {
	w := newWorld(t, Options{})
	w.write("a.txt", "four")
	os.Symlink("a.txt", filepath.Join(w.home, "link"))
	answer, code := w.call(fsService+"Stat", object{"path": "a.txt"})
	e, _ := answer["entry"].(object)
	if code != "" || e["name"] != "a.txt" || e["type"] != "FILE_TYPE_FILE" || e["path"] != w.home+"/a.txt" || e["size"] != "4" || e["mode"] != 0o644*1.0 || e["permissions"] != "-rw-r--r--" {
		t.Errorf("%s %v", code, answer)
	}
	owner := strconv.Itoa(os.Getuid())
	if os.Getuid() == 0 {
		owner = "root"
	}
	if os.Getuid() == 0 && (e["owner"] != owner || e["group"] != "root") || e["owner"] == "" || e["modifiedTime"] == nil || e["symlinkTarget"] != nil {
		t.Errorf("%v", e)
	}
	answer, _ = w.call(fsService+"Stat", object{"path": "~/link"})
	if e := answer["entry"]; dig(e, "name") != "link" || dig(e, "type") != "FILE_TYPE_FILE" || dig(e, "symlinkTarget") != w.home+"/a.txt" || dig(e, "path") != w.home+"/link" {
		t.Errorf("a link: %v", e)
	}
	for _, missing := range []string{"nope", "a.txt/nope"} {
		if _, code := w.call(fsService+"Stat", object{"path": missing}); code != "not_found" {
			t.Errorf("%s: %q", missing, code)
		}
	}
}

// Clients name the home of E2B's user. In a sandbox without that user, this path means the home of its own user.
func TestAliasOfTheHome(t *testing.T) {
	a := account{home: "/root", alias: "/root"}
	for given, want := range map[string]string{
		"": "/root", "~": "/root", "~/x": "/root/x", "x/../y": "/root/y", "/home/user": "/root", "/home/user/a": "/root/a", "/home/user2": "/home/user2", "/tmp": "/tmp",
	} {
		if got := a.path(given); got != want {
			t.Errorf("%q is %q, and should be %q", given, got, want)
		}
	}
	other := account{user: "eva", home: "/home/eva", alias: "/root"}
	if got := other.path("/home/user/a") + " " + other.path("a"); got != "/root/a /home/eva/a" {
		t.Errorf("another user's paths: %s", got) // one name is one file for every user
	}
	if got := (account{home: "/home/user"}).path("/home/user/a"); got != "/home/user/a" {
		t.Error(got)
	}
}

func TestMakeDir(t *testing.T) {
	w := newWorld(t, Options{})
	w.write("file", "")
	answer, code := w.call(fsService+"MakeDir", object{"path": "a/b"})
	if code != "" || dig(answer, "entry", "type") != "FILE_TYPE_DIRECTORY" || dig(answer, "entry", "permissions") != "drwxr-xr-x" {
		t.Errorf("%s %v", code, answer)
	}
	if _, code := w.call(fsService+"MakeDir", object{"path": "a/b"}); code != "already_exists" {
		t.Errorf("a folder that exists: %q", code)
	}
	for _, p := range []string{"file", "file/below"} {
		if _, code := w.call(fsService+"MakeDir", object{"path": p}); code != "invalid_argument" {
			t.Errorf("%s: %q", p, code)
		}
	}
}

func TestMoveAndRemove(t *testing.T) {
	w := newWorld(t, Options{})
	w.write("a", "1")
	answer, code := w.call(fsService+"Move", object{"source": "a", "destination": "new/b"})
	if code != "" || dig(answer, "entry", "path") != w.home+"/new/b" {
		t.Errorf("%s %v", code, answer)
	}
	if _, code := w.call(fsService+"Move", object{"source": "a", "destination": "c"}); code != "not_found" {
		t.Errorf("a missing file: %q", code)
	}
	for range 2 { // the second time it is missing, which is fine
		if _, code := w.call(fsService+"Remove", object{"path": "new"}); code != "" {
			t.Errorf("remove: %s", code)
		}
	}
	if _, err := os.Stat(filepath.Join(w.home, "new")); err == nil {
		t.Error("the folder is still there")
	}
}

func TestListDir(t *testing.T) {
	w := newWorld(t, Options{})
	for _, name := range []string{"d/z.txt", "d/s/in/x", "d/.dot"} {
		w.write(name, "")
	}
	list := func(message object) (names []string) {
		t.Helper()
		answer, code := w.call(fsService+"ListDir", message)
		entries, _ := answer["entries"].([]any)
		for _, e := range entries {
			names = append(names, strings.TrimPrefix(dig(e, "path").(string), w.home+"/d/"))
		}
		if code != "" {
			t.Error(code, answer)
		}
		return names
	}
	for depth, want := range map[int][]string{
		0: {".dot", "s", "z.txt"}, 1: {".dot", "s", "z.txt"}, 2: {".dot", "s", "s/in", "z.txt"}, 9: {".dot", "s", "s/in", "s/in/x", "z.txt"},
	} {
		if got := list(object{"path": "d", "depth": depth}); !slices.Equal(got, want) {
			t.Errorf("depth %d: %q", depth, got)
		}
	}
	if _, code := w.call(fsService+"ListDir", object{"path": "nope"}); code != "not_found" {
		t.Errorf("a missing folder: %q", code)
	}
	if _, code := w.call(fsService+"ListDir", object{"path": "d/z.txt"}); code != "invalid_argument" {
		t.Errorf("a file: %q", code)
	}
}

func TestWatchDir(t *testing.T) {
	w := newWorld(t, Options{})
	w.write("d/sub/a", "")
	c := w.open(fsService+"WatchDir", object{"path": "d", "recursive": true, "includeEntry": true})
	if m, _ := c.next(); m["start"] == nil {
		t.Fatalf("it begins with %v", m)
	}
	expect := func(name, kind string) object {
		t.Helper()
		for {
			m, last := c.next()
			if last {
				t.Fatalf("no %s of %s: %v", kind, name, m)
			}
			if dig(m, "filesystem", "name") == name && dig(m, "filesystem", "type") == kind {
				return m
			}
		}
	}
	w.write("d/sub/a", "new")
	if m := expect("sub/a", eventWrite); dig(m, "filesystem", "entry", "path") != w.home+"/d/sub/a" {
		t.Errorf("%v", m)
	}
	w.write("d/later/b", "")
	expect("later", eventCreate)
	expect("later/b", eventCreate)
	if resp, answer := w.post("/files?path=d/later/n", "application/octet-stream", strings.NewReader("1")); resp.StatusCode != 200 {
		t.Errorf("%s", answer)
	}
	expect("later/n", eventCreate)
	expect("later/n", eventWrite)
	os.Rename(filepath.Join(w.home, "d/later/b"), filepath.Join(w.home, "d/later/c"))
	expect("later/b", eventRename)
	expect("later/c", eventCreate)
	os.Remove(filepath.Join(w.home, "d/later/c"))
	expect("later/c", eventRemove)

	if code, _ := w.open(fsService+"WatchDir", object{"path": "nope"}).failure(); code != "not_found" {
		t.Errorf("a missing folder: %q", code)
	}
	if code, _ := w.open(fsService+"WatchDir", object{"path": "d/sub/a"}).failure(); code != "invalid_argument" {
		t.Errorf("a file: %q", code)
	}
	if code, _ := w.open(fsService+"WatchDir", object{"path": "d"}, "Connect-Timeout-Ms", "200").failure(); code != "deadline_exceeded" {
		t.Errorf("at the time limit: %q", code)
	}
}

// A watcher counts as a use of its sandbox, so it ends when the sandbox is paused, and with the token of its client.
func TestEndsOfWatchers(t *testing.T) {
	w := newWorld(t, Options{})
	w.write("d/a", "")
	life, end := context.WithCancelCause(t.Context())
	var pause func()
	q := request{httptest.NewRequest(http.MethodPost, "/", nil), seam.Target{Sandbox: w.sandbox, Service: w.svc}, t.Context()}
	for want, c := range map[string]struct {
		ctx context.Context
		end func()
	}{
		"paused":  {t.Context(), func() { pause() }},
		"revoked": {caller.As(t.Context(), &caller.Principal{Limits: caller.Unlimited, Life: life}), func() { end(hutch.Errorf(hutch.Denied, "the token was revoked")) }},
	} {
		q.ctx = c.ctx
		q.target.OnPause = func(end func()) func() { pause = end; return func() {} }
		answer, err := w.handler.createWatcher(q, watchRequest{Path: w.home + "/d"})
		if err != nil {
			t.Fatal(err)
		}
		c.end()
		w.eventually("the watcher says why it ended", func() bool {
			_, err := w.handler.watcherEvents(q, watcherRequest(answer))
			return err != nil && strings.Contains(err.Error(), want)
		})
	}
}

func TestWatcher(t *testing.T) {
	w := newWorld(t, Options{})
	w.write("d/a", "")
	answer, code := w.call(fsService+"CreateWatcher", object{"path": "d"})
	id := answer["watcherId"]
	if code != "" || id == nil {
		t.Fatalf("%s %v", code, answer)
	}
	w.write("d/b", "")
	w.eventually("the event is there", func() bool {
		answer, _ := w.call(fsService+"GetWatcherEvents", object{"watcherId": id})
		events, _ := answer["events"].([]any)
		return slices.ContainsFunc(events, func(e any) bool { return dig(e, "name") == "b" && dig(e, "type") == eventCreate })
	})
	if _, code := w.call(fsService+"RemoveWatcher", object{"watcherId": id}); code != "" {
		t.Errorf("remove: %s", code)
	}
	if _, code := w.call(fsService+"GetWatcherEvents", object{"watcherId": id}); code != "not_found" {
		t.Errorf("after it was removed: %q", code)
	}
	if _, code := w.call(fsService+"CreateWatcher", object{"path": "d/a"}); code != "invalid_argument" {
		t.Errorf("a file: %q", code)
	}
	for range maxWatchers {
		w.call(fsService+"CreateWatcher", object{"path": "d"})
	}
	if _, code := w.call(fsService+"CreateWatcher", object{"path": "d"}); code != "resource_exhausted" {
		t.Errorf("one more than the limit: %q", code)
	}
}
