package builds

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"hutch"
)

// newShellBed starts a server that can run the commands of a Dockerfile.
func newShellBed(t *testing.T, runtime string) *bed {
	t.Helper()
	b := newBed(t, runtime)
	b.load(t, shell, shellBase)
	return b
}

// everything is a Dockerfile that uses each kind of RUN.
const everything = `FROM localhost/shell AS one
COPY d /d
WORKDIR /d
ARG WHAT=arg
ENV SET=env
RUN echo $WHAT $SET $(id -u) $PWD > out && rm old /usr/bin/wc && mkdir new && echo n > new/n && chown 7:8 new/n && ln -s out link && ln out hard && ln -s /behind /over
RUN --mount=type=bind,source=m,target=/bound --mount=type=secret,id=key --mount=type=secret,id=key,env=KEY \
    --mount=type=tmpfs,target=/scratch --mount=type=tmpfs,target=/over --mount=type=cache,target=/kept \
    cat /bound/text | tee bound && tr a-z A-Z < /run/secrets/key > upper && echo "${#KEY}" > length && \
    echo gone > /over/x && echo gone > /scratch/x && cat /scratch/x && echo line >> /kept/lines && cp /kept/lines lines
USER 1000
RUN <<end
echo here $(id -u)
echo document > /tmp/doc
end

FROM localhost/shell
COPY --from=one /d /d
COPY --from=one /tmp/doc /d/
RUN ["/bin/dash", "-c", "echo exec form > /form"]
CMD ["cat", "/d/out"]
`

func everythingFiles() []entry {
	return files("d/old", "old", "d/stays", "1", "m/text", "bound text\n")
}

func TestCommands(t *testing.T) { each(t, testCommands) }

func testCommands(t *testing.T, runtime string) {
	b := newShellBed(t, runtime)
	req := hutch.BuildRequest{Name: "localhost/made", Dockerfile: everything, Secrets: map[string]string{"key": "abc"}}
	o, err := b.build(t, req, everythingFiles())
	if err != nil {
		t.Fatalf("%v\n%s", err, o.log())
	}
	for name, want := range map[string]string{
		"d/out": "arg env 0 /d\n", "d/new/n": "n\n", "d/bound": "bound text\n", "d/upper": "ABC", "d/length": "3\n", "d/doc": "document\n", "form": "exec form\n", "d/stays": "1", "d/lines": "line\n",
	} {
		if o.text[name] != want {
			t.Errorf("%s is %q, and not %q", name, o.text[name], want)
		}
	}
	for _, gone := range []string{"d/old", "bound", "bound/text", "run/secrets/key", "run/secrets", "run", "scratch", "scratch/x", "behind", "behind/x", "kept", "kept/lines"} {
		if o.files[gone] != nil {
			t.Errorf("%s is in the image", gone)
		}
	}
	for _, line := range []string{"bound text", "gone", "here 1000"} {
		if !slices.Contains(strings.Split(o.log(), "\n"), line) {
			t.Errorf("the log %q has no %q", o.log(), line)
		}
	}
	if got := modeOf(o.files["d/new/n"]); got != "644 7 8" {
		t.Errorf("the owner of a file is %s", got)
	}
	b.clean(t)
	again := b.cached(t, req)
	if again.ID != o.ID {
		t.Errorf("the image is another one: %s %v, and it was %s %v", again.ID, again.Layers, o.ID, o.Layers)
	}
	b.inSandbox(t)
	b.changed(t, req)
	b.removed(t)
}

// cached repeats a build, and checks that no command runs again.
func (b *bed) cached(t *testing.T, req hutch.BuildRequest) *built {
	t.Helper()
	o, err := b.build(t, req, everythingFiles())
	if err != nil {
		t.Fatal(err)
	}
	for name, state := range o.did() {
		if state != hutch.BuildCached && !strings.HasPrefix(name, "FROM") {
			t.Errorf("%s is %s, and was done before", name, state)
		}
	}
	return o
}

// inSandbox checks the files of the built image in a sandbox.
func (b *bed) inSandbox(t *testing.T) {
	t.Helper()
	sb, err := b.Create(t.Context(), hutch.CreateRequest{Image: "localhost/made"})
	if err != nil {
		t.Fatal(err)
	}
	res, err := b.Exec(t.Context(), sb.ID, hutch.ExecRequest{Command: "cat /d/out; ls /d; test ! -e /d/old"}, nil)
	if err != nil || res.ExitCode != 0 || !strings.Contains(string(res.Stdout), "arg env 0 /d") {
		t.Errorf("in a sandbox: %+v, %v", res, err)
	}
	if _, err := b.Destroy(t.Context(), sb.ID, true); err != nil {
		t.Error(err)
	}
}

// changed changes a file that only a late step uses, and checks that the steps before it come from the cache.
func (b *bed) changed(t *testing.T, req hutch.BuildRequest) {
	t.Helper()
	o, err := b.build(t, req, files("d/old", "old", "d/stays", "1", "m/text", "other\n"))
	if err != nil {
		t.Fatal(err)
	}
	did := o.did()
	for name, state := range did {
		want := hutch.BuildCached
		switch {
		case strings.HasPrefix(name, "FROM"):
			continue
		case strings.HasPrefix(name, "RUN") && !strings.Contains(name, "rm old"), strings.HasPrefix(name, "COPY --from"): // the file is copied, too
			want = hutch.BuildDone
		}
		if state != want {
			t.Errorf("%s is %s, and not %s", name, state, want)
		}
	}
	if o.text["d/bound"] != "other\n" {
		t.Errorf("the file is %q; %v", o.text["d/bound"], slices.Sorted(maps.Keys(did)))
	}
	if o.text["d/lines"] != "line\nline\n" {
		t.Errorf("the cache mount is not kept: %q", o.text["d/lines"])
	}
}

// removed checks that files that a command removes from its image are marked as removed, and that NoCache runs a step
// again.
func (b *bed) removed(t *testing.T) {
	t.Helper()
	req := hutch.BuildRequest{NoCache: true, Dockerfile: "FROM localhost/shell\nRUN rm -r /usr/bin/wc /usr/share && cat /proc/sys/kernel/random/uuid > /tmp/x\n"}
	first, err := b.build(t, req, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.build(t, req, nil)
	if err != nil || first.text["tmp/x"] == second.text["tmp/x"] {
		t.Errorf("the command did not run again: %q, %v", second.text["tmp/x"], err)
	}
	if want := []string{"tmp/x", "usr/.wh.share", "usr/bin/.wh.wc"}; !slices.Equal(second.paths(), want) {
		t.Errorf("the layer has %q, and not %q", second.paths(), want)
	}
	b.clean(t)
}

// A failed command or an impossible instruction ends the build with an error that says why, and nothing of the build is
// left.
func TestFailures(t *testing.T) { each(t, testFailures) }

func testFailures(t *testing.T, runtime string) {
	b := newShellBed(t, runtime)
	for _, c := range []struct {
		name, dockerfile string
		req              hutch.BuildRequest
		kind             error
		says             string
	}{
		{"exit code", "RUN echo some output; exit 3", hutch.BuildRequest{}, hutch.Invalid, "exit code 3"},
		{"no program", "RUN [\"/none\"]", hutch.BuildRequest{}, nil, "none"},
		{"no user", "USER nobodyknows\nRUN true", hutch.BuildRequest{}, hutch.Invalid, "nobodyknows"},
		{"no secret", "RUN --mount=type=secret,id=none,required true", hutch.BuildRequest{}, hutch.NotFound, "--secret id=none"},
		{"ssh", "RUN --mount=type=ssh true", hutch.BuildRequest{}, hutch.Unsupported, "ssh"},
		{"host network", "RUN --network=host true", hutch.BuildRequest{}, hutch.Unsupported, "--network=host"},
		{"privileges", "RUN --security=insecure true", hutch.BuildRequest{}, hutch.Unsupported, "--security=insecure"},
		{"large secret", "RUN --mount=type=secret,id=key,env=KEY true", hutch.BuildRequest{Secrets: map[string]string{"key": strings.Repeat("x", 200<<10)}}, hutch.Exhausted, "as a file"},
		{"mounts", "RUN " + strings.Repeat("--mount=type=tmpfs,target=/t ", 101) + "true", hutch.BuildRequest{}, hutch.Exhausted, "mounts"},
		{"time", "RUN sleep 1000", hutch.BuildRequest{Timeout: 4}, hutch.Exhausted, "--timeout"},
		{"disk", "RUN dd if=/dev/zero of=/tmp/big bs=1M count=64", hutch.BuildRequest{Limits: hutch.Limits{Disk: 16}}, hutch.Invalid, "exit code"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.req.Dockerfile, c.req.Name = "FROM localhost/shell\n"+c.dockerfile, "localhost/failed"
			o, err := b.build(t, c.req, nil)
			if err == nil || c.kind != nil && !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error is %v\n%s", err, o.log())
			}
			if _, err := b.Image(t.Context(), "localhost/failed"); !errors.Is(err, hutch.NotFound) {
				t.Errorf("there is an image: %v", err)
			}
			b.clean(t)
		})
	}
}

// If a server is killed during a build, the sandbox of the build is removed when the next server starts.
func TestKilledServer(t *testing.T) {
	b := newShellBed(t, "gvisor")
	for id, labels := range map[string]map[string]string{"build-left": {"hutch.build": "build-1"}, "build-mine": nil} {
		if _, err := b.Create(t.Context(), hutch.CreateRequest{ID: id, Image: shell, Labels: labels}); err != nil {
			t.Fatal(err)
		}
	}
	b.End(t)
	b.start(t)
	list, err := b.Sandboxes(t.Context(), hutch.Filter{})
	if err != nil || len(list) != 1 || list[0].ID != "build-mine" {
		t.Errorf("after the start there are %+v, %v", list, err)
	}
	if _, err := b.Destroy(t.Context(), "build-mine", true); err != nil {
		t.Error(err)
	}
}

// A context can be larger than the body of any other request.
func TestLargeContext(t *testing.T) {
	b := newBed(t, "gvisor")
	req := hutch.BuildRequest{Dockerfile: "FROM scratch\nCOPY . /\n"}
	if _, err := b.BuildImage(t.Context(), req, pack(t, files("large", strings.Repeat("a", 65<<20))), nil); err != nil {
		t.Fatal(err)
	}
}
