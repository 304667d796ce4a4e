package builds

import (
	"errors"
	"strings"
	"testing"

	"hutch"
)

// serving is a script that creates a Git repository, and the files that a web server serves with it.
const serving = `set -e
mkdir -p /workspace/www/d && cd /workspace/www && printf content > file && printf 2 > d/inner && printf 1 > outer && chmod 755 outer
git init -q -b main . && git -c user.name=a -c user.email=a@example.com add d outer && git -c user.name=a -c user.email=a@example.com commit -q -m 1 && git tag v1
git clone -q --bare . /workspace/r.git && git -C /workspace/r.git update-server-info && mv /workspace/r.git .`

// ADD fetches URLs and repositories over the network of the build. What it knows to be unchanged is taken from the
// cache.
func TestRemote(t *testing.T) { each(t, testRemote) }

func testRemote(t *testing.T, runtime string) {
	b := newBed(t, runtime)
	if _, err := b.Create(t.Context(), hutch.CreateRequest{ID: "web"}); err != nil {
		t.Fatal(err)
	}
	if res, err := b.Exec(t.Context(), "web", hutch.ExecRequest{Command: serving}, nil); err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	web, err := b.StartProcess(t.Context(), "web", hutch.ProcessRequest{Command: "python3 -m http.server 8000 -d /workspace/www"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Wait(t.Context(), "web", web.ID, hutch.WaitRequest{Port: 8000, Timeout: 60}); err != nil {
		t.Fatal(err)
	}
	const at, sum = "http://web.sandbox.internal:8000", "sha256:ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
	for _, c := range []testCase{
		{name: "url", dockerfile: "ADD " + at + "/file /x/", text: map[string]string{"x/file": "content"}, modes: map[string]string{"x/file": "600 0 0"}},
		{name: "checksum", dockerfile: "ADD --checksum=" + sum + " --chmod=640 --chown=7:8 " + at + "/file /y", text: map[string]string{"y": "content"}, modes: map[string]string{"y": "640 7 8"}},
		{name: "wrong checksum", dockerfile: "ADD --checksum=" + strings.Replace(sum, "e", "f", 1) + " " + at + "/file /y", kind: hutch.Invalid, errors: []string{sum}},
		{name: "missing", dockerfile: "ADD " + at + "/none /y", kind: hutch.Invalid, errors: []string{"404", "--allow"}},
		{name: "repository", dockerfile: "ADD " + at + "/r.git /r", text: map[string]string{"r/outer": "1", "r/d/inner": "2"}, paths: []string{"r/d/inner", "r/outer"}, modes: map[string]string{"r/outer": "755 0 0"}},
		{name: "password", dockerfile: "ADD --keep-git-dir=true " + strings.Replace(at, "://", "://ada:hunter2@", 1) + "/r.git /r", text: map[string]string{"r/outer": "1"}, check: func(t *testing.T, o *built) {
			for name, text := range o.text {
				if strings.Contains(text, "hunter2") {
					t.Errorf("the password is in %s", name)
				}
			}
			if !strings.Contains(o.text["r/.git/config"], at+"/r.git") {
				t.Errorf("the settings of the repository are %q", o.text["r/.git/config"])
			}
		}},
		{name: "folder of a tag", dockerfile: "ADD " + at + "/r.git#v1:d /r", text: map[string]string{"r/inner": "2"}, paths: []string{"r/inner"}},
		{name: "no such branch", dockerfile: "ADD " + at + "/r.git#none /r", kind: hutch.NotFound, errors: []string{"none"}},
		{name: "not allowed", dockerfile: "ADD http://evil.example.net/file /r", kind: hutch.Invalid, errors: []string{"--allow"}},
	} {
		c.dockerfile = "FROM localhost/base\n" + c.dockerfile
		c.req.Network = hutch.Network{Mode: hutch.NetworkAllowList, Links: hutch.Links("web")}
		t.Run(c.name, func(t *testing.T) { c.run(t, b) })
	}
	b.offline(t, "ADD --checksum="+sum+" --chmod=640 --chown=7:8 "+at+"/file /y")
}

// offline repeats a build without any network.
func (b *bed) offline(t *testing.T, line string) {
	t.Helper()
	if _, err := b.Destroy(t.Context(), "web", true); err != nil {
		t.Error(err)
	}
	b.clean(t)
	o, err := b.build(t, hutch.BuildRequest{Dockerfile: "FROM localhost/base\n" + line}, nil)
	if err != nil || o.text["y"] != "content" {
		t.Errorf("with a digest it is asked for again: %v", err)
	}
	if _, err := b.build(t, hutch.BuildRequest{Dockerfile: "FROM localhost/base\nADD http://web.sandbox.internal:8000/file /x/\n"}, nil); !errors.Is(err, hutch.Invalid) {
		t.Errorf("without one: %v", err)
	}
}
