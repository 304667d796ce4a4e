package builds

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/moby/moby/api/types/build"
	docker "github.com/moby/moby/client"

	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/dockerd"
)

// engine is a client of Docker's own engine, which includes BuildKit.
type engine struct{ *docker.Client }

// The name of the engine's images, and the path of a test's Dockerfile in their contexts.
const (
	engineTag  = "localhost/of-the-engine"
	engineFile = "Dockerfile-of-the-test"
)

// unlike has the reason for each case that is not compared.
var unlike = map[string]string{
	"chmod":                                 "an engine of that age knows modes as numbers only",
	"mode and owner":                        "an engine of that age keeps setuid bits, which a newer one sets again",
	"parents":                               "an engine of that age has no --parents",
	"exclude":                               "an engine of that age has no --exclude",
	"heredoc":                               "an engine of that age has no heredocs",
	"removals of variables":                 "an engine of that age does not know them",
	"add a compressed archive":              "an engine of that age ignores --chown of an archive",
	"add what is compressed and no archive": "an engine of that age unpacks it",
	"chown to a stranger":                   "the engine takes a stranger for root",
	"scratch alone":                         "the engine makes no image without files",
	"dockerignore":                          "it is for clients to apply",
	"a file as a whiteout":                  "the engine makes an image in which a file is gone",
	"names out of the context":              "the engine refuses the context; here nothing leads out",
	"names out of an archive":               "likewise",
	"syntax line":                           "the engine asks a registry",
	"no such image":                         "likewise",
	"add a repository by ssh":               "the engine asks the network",
	"add xz":                                "the engine has a program for it",
	"add what begins as xz":                 "likewise",
	"variables without end":                 "the engine has no bound",
	"variables without end over lines":      "likewise",
	"patterns without end":                  "likewise",
	"patterns of a copy without end":        "likewise",
}

// A Dockerfile gives the same result as in Docker's own engine: files, modes, owners and configuration.
//
// It takes minutes, so only `make compat-builds` runs it, with HUTCH_COMPAT_BUILDS as the file for the report.
func TestAsDockerDoes(t *testing.T) {
	report := os.Getenv("HUTCH_COMPAT_BUILDS")
	if report == "" {
		t.Skip("make compat-builds runs it")
	}
	var lines []string
	e := newEngine(t, dockerd.Start(t).Host)
	beds := map[string]*bed{}
	for _, runtime := range hutchtest.Runtimes {
		beds[runtime] = newShellBed(t, runtime)
	}
	all := slices.Concat(cases(t), compared(t))
	for name := range unlike {
		if !slices.ContainsFunc(all, func(c testCase) bool { return c.name == name }) {
			t.Errorf("there is no case %q", name)
		}
	}
	for _, c := range all {
		result := "not compared: " + unlike[c.name]
		if unlike[c.name] == "" {
			result = "differs"
			if t.Run(c.name, func(t *testing.T) { c.compare(t, beds, e) }) {
				result = "the same"
			}
		}
		lines = append(lines, fmt.Sprintf("| %s | %s |\n", c.name, result))
	}
	for _, b := range beds {
		b.clean(t)
	}
	commit, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(report, fmt.Appendf(nil, reportHead, bytes.TrimSpace(commit), strings.Join(lines, "")), 0o644); err != nil {
		t.Error(err)
	}
}

// reportHead begins the report.
const reportHead = `# Builds, compared with Docker's engine

Written by make compat-builds. Each Dockerfile was built here, on gVisor and on native, and by the engine of Debian's docker.io 20.10, with the BuildKit that is in it. Files,
modes, owners and configuration of the images are compared. Commit %s.

| Dockerfile | |
|---|---|
%s`

func newEngine(t testing.TB, host string) engine {
	t.Helper()
	e := engine{dockerd.Client(t, host)}
	e.load(t, base, smallBase)
	e.load(t, shell, shellBase)
	return e
}

// load loads an image into the engine.
func (e engine) load(t testing.TB, name string, archive func() ([]byte, error)) {
	t.Helper()
	text, err := archive()
	if err != nil {
		t.Fatal(err)
	}
	img, err := opened(text)
	if err != nil {
		t.Fatal(err)
	}
	id, err := img.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	res, err := e.ImageLoad(t.Context(), bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(res)
	if err == nil && bytes.Contains(said, []byte(`"error"`)) {
		err = fmt.Errorf("docker load: %s", said)
	}
	if err == nil {
		_, err = e.ImageTag(t.Context(), docker.ImageTagOptions{Source: id.String(), Target: name})
	}
	if err = errors.Join(err, res.Close()); err != nil {
		t.Fatal(err)
	}
}

func opened(archive []byte) (v1.Image, error) {
	return tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil }, nil)
}

// build builds the Dockerfile of a case.
func (e engine) build(t testing.TB, c testCase) (v1.Image, error) {
	t.Helper()
	if err := e.run(t, c, docker.ImageBuildOptions{NetworkMode: "none"}); err != nil {
		return nil, err
	}
	return e.image(t)
}

// run builds the Dockerfile of a case, and leaves the image in the engine.
func (e engine) run(t testing.TB, c testCase, o docker.ImageBuildOptions) error {
	t.Helper()
	list := slices.Clip(c.files)
	o.Tags, o.Dockerfile, o.Target, o.Labels, o.BuildArgs = []string{engineTag}, c.req.File, c.req.Target, c.req.Labels, map[string]*string{}
	o.Remove, o.Version = true, build.BuilderBuildKit
	if c.dockerfile != "" {
		o.Dockerfile, list = engineFile, append(list, entry{name: engineFile, content: c.dockerfile})
	}
	if c.req.Name != "" {
		o.Tags = append(o.Tags, c.req.Name)
	}
	for name, value := range c.req.Args {
		o.BuildArgs[name] = &value
	}
	res, err := e.ImageBuild(t.Context(), packAs(t, list, 0, 0), o) // as docker build does: all files are root's
	if err != nil {
		return err
	}
	defer res.Body.Close()
	for d := json.NewDecoder(res.Body); ; {
		var said struct{ Error string }
		switch err := d.Decode(&said); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case said.Error != "":
			return errors.New(said.Error)
		}
	}
}

// image returns the last image that the engine built.
func (e engine) image(t testing.TB) (v1.Image, error) {
	t.Helper()
	res, err := e.ImageSave(t.Context(), []string{engineTag})
	if err != nil {
		return nil, err
	}
	defer res.Close()
	archive, err := io.ReadAll(res)
	if err != nil {
		return nil, err
	}
	return opened(archive)
}

func (c testCase) compare(t *testing.T, beds map[string]*bed, e engine) {
	theirs, failed := e.build(t, c)
	for runtime, b := range beds {
		t.Run(runtime, func(t *testing.T) { c.compareWith(t, b, theirs, failed) })
	}
}

// compareWith builds a case with Hutch, and compares the result with the engine's image or error.
func (c testCase) compareWith(t *testing.T, b *bed, theirs v1.Image, their error) {
	req := c.req
	req.Dockerfile = c.dockerfile
	mine, err := b.build(t, req, c.files)
	if (err == nil) != (their == nil) {
		t.Fatalf("here it ends with %v\n%s\nand there with %v", err, mine.log(), their)
	}
	if err != nil {
		return
	}
	if got, want := settings(t, mine.image), settings(t, theirs); got != want {
		t.Errorf("the configuration is\n%s\nand Docker's\n%s", got, want)
	}
	got, want := flat(t, mine.image), flat(t, theirs)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("/%s is %q, and Docker's %q", name, got[name], want[name])
		}
		delete(got, name)
	}
	for name, text := range got {
		t.Errorf("/%s is %q, and Docker has none", name, text)
	}
}

// settings returns the part of an image's configuration that is about the programs that run in it.
func settings(t *testing.T, img v1.Image) string {
	t.Helper()
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := file.Config
	return show(map[string]any{
		"env": c.Env, "user": c.User, "dir": path.Join("/", c.WorkingDir), "entrypoint": c.Entrypoint, "cmd": c.Cmd, "labels": sorted(c.Labels),
		"ports": sorted(c.ExposedPorts), "volumes": sorted(c.Volumes), "signal": c.StopSignal, "health": c.Healthcheck, "onbuild": c.OnBuild, "shell": c.Shell,
	})
}

func sorted[T any](m map[string]T) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fmt.Sprint(name, "=", m[name]))
	}
	return list
}

// flat describes each file of an image, after the layers were put over each other.
func flat(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	all := map[string]string{}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		names, texts := describe(t, r)
		r.Close()
		flatten(all, names, texts)
	}
	maps.DeleteFunc(all, func(name, _ string) bool {
		top, _, _ := strings.Cut(name, "/")
		return slices.Contains([]string{"proc", "sys", "dev"}, top) || path.Base(name) == engineFile ||
			slices.Contains([]string{"etc/hosts", "etc/hostname", "etc/resolv.conf", ".dockerenv"}, name) // every container and sandbox has these
	})
	return all
}

// flatten puts the files of a layer over those of the earlier layers.
func flatten(all map[string]string, names []string, texts map[string]string) {
	drop := func(name string, itself bool) {
		maps.DeleteFunc(all, func(there, _ string) bool {
			return itself && there == name || strings.HasPrefix(there, name+"/") || name == "." && !itself
		})
	}
	for _, name := range names {
		switch dir, base := path.Split(name); {
		case base == ".wh..wh..opq":
			drop(path.Clean(dir), false)
		case strings.HasPrefix(base, ".wh."):
			drop(dir+base[len(".wh."):], true)
		}
	}
	for _, name := range names {
		if strings.HasPrefix(path.Base(name), ".wh.") || name == "." {
			continue
		}
		if texts[name][0] != 'd' {
			drop(name, false)
		}
		all[name] = texts[name]
		for dir := path.Dir(name); dir != "." && all[dir] == ""; dir = path.Dir(dir) {
			all[dir] = "d 755 0:0 "
		}
	}
}

// describe returns the names of a layer, in order, and the entry of each.
func describe(t *testing.T, layer io.Reader) (names []string, texts map[string]string) {
	t.Helper()
	texts = map[string]string{}
	for r := tar.NewReader(layer); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, texts
		}
		if err != nil {
			t.Fatal(err)
		}
		name := path.Clean(h.Name)
		names = append(names, name)
		if h.Typeflag == tar.TypeLink {
			texts[name] = texts[path.Clean(h.Linkname)]
			continue
		}
		texts[name] = textOf(t, h, r)
	}
}

func textOf(t *testing.T, h *tar.Header, content io.Reader) string {
	t.Helper()
	owner := fmt.Sprintf("%d:%d ", h.Uid, h.Gid)
	switch h.Typeflag {
	case tar.TypeSymlink:
		return "l " + owner + h.Linkname
	case tar.TypeDir:
		return fmt.Sprintf("d %o %s", h.Mode&0o7777, owner)
	case tar.TypeFifo:
		return fmt.Sprintf("p %o %s", h.Mode&0o7777, owner)
	}
	sum := sha256.New()
	n, err := io.Copy(sum, content)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("f %o %s%d bytes %.6x", h.Mode&0o7777, owner, n, sum.Sum(nil))
}

// compared returns the Dockerfiles that only the comparison uses.
func compared(t *testing.T) []testCase {
	archive := tarOf(t, "usr/", "usr/bin/", "usr/bin/tool", "T", entry{name: "dir/", mode: 0o700}, "dir/x", "X", entry{name: "dir/s", content: "S", mode: 0o4755}, entry{name: "dir/l", link: "x"})
	tree := files(entry{name: "d/", mode: 0o700}, "d/a", "1", entry{name: "d/x", content: "2", mode: 0o4751}, entry{name: "d/e/", mode: 0o2770}, "d/e/b", "3", entry{name: "d/l", link: "e"}, entry{name: "d/up", link: "../a"}, "a", "0",
		entry{name: "la", link: "a"}, entry{name: "ld", link: "d"})
	small := func(name, lines string) testCase {
		return testCase{name: name, dockerfile: "FROM localhost/base\n" + lines, files: tree}
	}
	run := func(name, lines string) testCase {
		return testCase{name: name, dockerfile: "FROM localhost/shell\n" + lines, files: tree}
	}
	return []testCase{
		small("a folder with modes", "COPY d /x"),
		small("a folder with modes into one that is there", "COPY a /x/\nCOPY d /x/"),
		small("a folder over the same folder", "COPY d /x\nCOPY d /x"),
		small("a folder and its owner", "COPY --chown=5 d /x\nCOPY --chown=6:7 d/e /x/e"),
		small("a new path and its owner", "COPY --chown=5:6 a /new/path/\nCOPY --chown=7 a /other/path/file"),
		small("a link to a file", "COPY la /x/\nCOPY la /y"),
		small("a link to a folder", "COPY ld /x/\nCOPY ld/ /y/"),
		small("over a link to a file", "COPY d/l /x/l\nCOPY la /x/\nCOPY a /x/la"),
		small("into a link to a folder", "COPY d /x\nCOPY a /x/l/"),
		small("a file onto a link to a folder", "COPY d /x\nCOPY a /x/l"),
		small("a folder onto a link to a folder", "COPY d /x\nCOPY d/e /x/l"),
		small("a file that becomes a folder's", "COPY a /x\nCOPY a d/a /x/"),
		small("a point", "WORKDIR /w\nCOPY a .\nCOPY d/a ./\nCOPY d/e e/."),
		small("above the root", "COPY a ../../x"),
		small("links above", "COPY a /bin/../y"),
		small("globs and folders", "COPY d/* /x/"),
		small("a glob of one", "COPY a* /x"),
		small("mode and owner", "COPY --chmod=640 --chown=1:2 d /x"),
		small("the base's group", "COPY --chown=root a /x"),
		small("add a folder", "ADD d /x/"),
		small("workdir with user", "USER 7:8\nWORKDIR /w/v\nCOPY a ."),
		small("workdir of a link", "WORKDIR /bin/w"),
		small("an argument of everybody", "ARG HTTP_PROXY\nARG X=1\nARG X\nENV Y=$X$HTTP_PROXY"),
		small("quotes", `ENV A='$X' B="$COLOUR \"q\"" C=a\ b D=\$COLOUR`+"\nLABEL a=\"b c\" 'd e'=f\nENV Z old form  of it"),
		small("removals of variables", "ENV A=${COLOUR#r} B=${COLOUR%d}"),
		small("cmd forms", "CMD echo hi"),
		small("cmd then entrypoint of a shell", "CMD [\"a\"]\nENTRYPOINT echo $A"),
		small("health", "HEALTHCHECK --interval=2s --timeout=3s --start-period=4s --retries=5 CMD [\"/a\", \"b\"]"),
		small("no health", "HEALTHCHECK NONE"),
		small("ports and volumes", "EXPOSE 1-3 80/tcp 53/udp\nVOLUME /a /b\nVOLUME [\"/c d\"]\nSTOPSIGNAL 9"),
		small("triggers", "ONBUILD RUN echo $A\nONBUILD COPY a /"),
		small("maintainer", "MAINTAINER somebody"),
		{name: "add over folders", dockerfile: "FROM localhost/base\nCOPY d /dir\nADD a.tar /", files: append(slices.Clip(tree), files("a.tar", archive)...)},
		{name: "add through a link", dockerfile: "FROM localhost/base\nADD a.tar /bin/", files: files("a.tar", archive)},
		{name: "from a stage with owners", dockerfile: "FROM localhost/base AS one\nCOPY --chown=7:8 d /x\nFROM localhost/base\nCOPY --from=one /x /y\nCOPY --from=one --chown=9 /x /z", files: tree},
		run("what a command writes", `WORKDIR /d
RUN echo a > file && chmod 4750 file && mkdir -p deep/er && chmod 2775 deep && chmod 1777 deep/er && ln -s ../file deep/link && ln file hard && : > owned && chmod 6755 owned && chown 7:8 owned && mkfifo pipe
RUN touch -d @0 old && touch -d @1 older && : > empty && mkdir void && truncate -s 1M hole && echo x > .hidden && echo s > 'a space' && mkdir a.d && chown 9 a.d && touch -d @0 a.d
RUN umask 077 && mkdir private && : > private/file && mv deep deeper && rm -r void && rm hard`),
		run("what a command changes", `RUN chmod 700 /usr/bin/wc && chown 3:4 /usr/bin/cut && rm /usr/bin/tr && mv /usr/bin/head /usr/bin/first && rm /usr/bin/tac && mkdir /usr/bin/tac && chmod 750 /usr/bin/tac
RUN rm -r /usr/share && mkdir /usr/share && echo n > /usr/share/n && chmod 711 /usr/sbin && chown 5:6 /usr/sbin
RUN mv /usr/share /share && ln -s /share /usr/share && rm /usr/bin/sum && ln -s wc /usr/bin/sum && touch -d @0 /usr/bin/nl`),
		run("what a user writes", `RUN mkdir -p /w && chmod 777 /w && cp /usr/bin/cp /usr/bin/rootcp && chmod 4755 /usr/bin/rootcp
USER 1000:1000
WORKDIR /w
RUN echo mine > file && rootcp file roots && rootcp file /roots && mkdir -m 700 dir && echo d > dir/d`),
		run("stages with commands", `RUN mkdir /o && echo 1 > /o/1 && chown 7:8 /o/1 && chmod 600 /o/1 && ln -s 1 /o/l && ln /o/1 /o/h
FROM localhost/shell
COPY --from=0 /o /p
RUN rm /p/l && echo 2 >> /p/1`),
		run("mounts", `RUN mkdir -p /m/d /t /c
RUN --mount=type=bind,source=d,target=/m/d --mount=type=tmpfs,target=/t --mount=type=cache,target=/c mkdir /o && cp -r /m/d/e /o/ && echo 1 > /t/1 && echo 2 > /c/2 && cat /t/1 /c/2 > /o/12`),
		run("variables of a command", `ARG A=1
ENV B=2
SHELL ["/bin/dash", "-ec"]
RUN echo $A $B $COLOUR $0 $PWD $PATH $HOME > /out; id -u >> /out`),
	}
}
