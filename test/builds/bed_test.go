// Package builds makes images of Dockerfiles, on a `hutch serve`, and examines them.
package builds

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"hutch"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/debian"
	"hutch/internal/hutchtest/server"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// The images that the Dockerfiles of the tests start from: one with few files, and one with a shell.
const (
	base  = "localhost/base"
	shell = "localhost/shell"
)

var (
	smallBase = sync.OnceValues(func() ([]byte, error) { return archiveOf(writeSmall) })
	shellBase = sync.OnceValues(func() ([]byte, error) { return archiveOf(debian.WriteShell) })
)

// writeSmall writes the files that tests without commands look at.
func writeSmall(w *tar.Writer) error {
	for _, h := range []*tar.Header{
		{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755}, {Name: "usr/bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "bin", Typeflag: tar.TypeSymlink, Linkname: "usr/bin", Mode: 0o777},
	} {
		if err := w.WriteHeader(h); err != nil {
			return err
		}
	}
	passwd := "root:x:0:0:root:/root:/bin/bash\n"
	if err := w.WriteHeader(&tar.Header{Name: "etc/passwd", Mode: 0o644, Size: int64(len(passwd))}); err != nil {
		return err
	}
	_, err := io.WriteString(w, passwd)
	return err
}

// archiveOf returns the archive of an image with one layer.
func archiveOf(write func(*tar.Writer) error) ([]byte, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := errors.Join(write(w), w.Close()); err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil }, tarball.WithCompressionLevel(gzip.NoCompression))
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Architecture, file.OS = goruntime.GOARCH, "linux"
	file.Config = v1.Config{Env: []string{"PATH=/usr/bin:/bin", "COLOUR=red"}, Labels: map[string]string{"of": "base"}}
	if img, err = mutate.ConfigFile(img, file); err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	err = tarball.Write(nil, img, &archive)
	return archive.Bytes(), err
}

// bed is a server, and a client that is its administrator.
type bed struct {
	*server.Process
	data, runtime string
}

// each runs a test on each runtime where commands can run as root.
func each(t *testing.T, test func(t *testing.T, runtime string)) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			if !hutchtest.HasRoot(runtime) {
				t.Skip("no command is root on native without root and subordinate ids")
			}
			test(t, runtime)
		})
	}
}

func newBed(t testing.TB, runtime string) *bed {
	t.Helper()
	b := newBedIn(t, runtime, hutchtest.Dir(t))
	t.Cleanup(func() { b.End(t) })
	return b
}

// newBedIn starts a server of a runtime with its data in a folder. The caller ends the server.
func newBedIn(t testing.TB, runtime, dir string) *bed {
	t.Helper()
	hutchtest.Driver(t, runtime, hutchtest.Dir(t)) // skips the test where the runtime does not work
	b := &bed{data: filepath.Join(dir, "data"), runtime: runtime}
	b.start(t)
	b.load(t, base, smallBase)
	return b
}

// load loads an image into the server.
func (b *bed) load(t testing.TB, name string, archive func() ([]byte, error)) {
	t.Helper()
	text, err := archive()
	if err == nil {
		_, err = b.LoadImages(t.Context(), name, bytes.NewReader(text))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// start starts the server, or starts it again after it has ended.
func (b *bed) start(t testing.TB) {
	t.Helper()
	b.Process = server.Run(t, server.Options{Data: b.data, Flags: []string{"--pool", "0", "--runtime", b.runtime}})
}

// entry is one thing in the context of a build.
type entry struct {
	name, content string
	mode          int64
	link          string // target of a link
}

// files returns a build context of paths and contents. A path with a slash at its end is a folder.
func files(list ...any) []entry {
	var all []entry
	for i := 0; i < len(list); i++ {
		switch v := list[i].(type) {
		case entry:
			all = append(all, v)
		case string:
			e := entry{name: v}
			if !strings.HasSuffix(v, "/") {
				i++
				e.content = list[i].(string)
			}
			all = append(all, e)
		}
	}
	return all
}

// pack returns a context as an archive.
func pack(t testing.TB, list []entry) io.Reader {
	t.Helper()
	return packAs(t, list, 501, 20)
}

func packAs(t testing.TB, list []entry, uid, gid int) io.Reader {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range list {
		h := &tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.content)), Typeflag: tar.TypeReg, Uid: uid, Gid: gid}
		switch {
		case e.link != "":
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, e.link, 0
		case strings.HasSuffix(e.name, "/"):
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		if e.mode != 0 {
			h.Mode = e.mode
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, e.content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// built is the result of a build.
type built struct {
	hutch.Image
	events []hutch.BuildEvent
	image  v1.Image
	config v1.Config
	files  map[string]*tar.Header // of all layers above the base
	text   map[string]string
	layers int
}

func (b *bed) build(t testing.TB, req hutch.BuildRequest, list []entry) (*built, error) {
	t.Helper()
	out := &built{files: map[string]*tar.Header{}, text: map[string]string{}}
	img, err := b.BuildImage(t.Context(), req, pack(t, list), func(e hutch.BuildEvent) error {
		out.events = append(out.events, e)
		return nil
	})
	out.Image = img
	if err != nil {
		return out, err
	}
	var archive bytes.Buffer
	if err := b.SaveImage(t.Context(), img.ID, &archive); err != nil {
		t.Fatal(err)
	}
	if out.image, err = opened(archive.Bytes()); err != nil {
		t.Fatal(err)
	}
	return out, out.read(out.image)
}

// read records the configuration of an image, and the files of all layers above its base.
func (o *built) read(img v1.Image) error {
	file, err := img.ConfigFile()
	if err != nil {
		return err
	}
	o.config = file.Config
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	o.layers = len(layers)
	for _, l := range layers {
		err := o.layer(l)
		if err == errBase {
			clear(o.files)
			clear(o.text)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var errBase = errors.New("the layer of a base")

// layer records the files of a layer. It returns errBase for the layer of a base, which has the folder usr/bin.
func (o *built) layer(l v1.Layer) error {
	r, err := l.Uncompressed()
	if err != nil {
		return err
	}
	defer r.Close()
	for a := tar.NewReader(r); ; {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Name == "usr/bin/" || h.Name == "usr/bin/cat" {
			return errBase
		}
		content, err := io.ReadAll(a)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(h.Name, "/")
		o.files[name], o.text[name] = h, string(content)
	}
}

// did returns the last state of each step, by the step's name without numbers.
func (o *built) did() map[string]hutch.BuildState {
	names, states := map[int]string{}, map[string]hutch.BuildState{}
	for _, e := range o.events {
		switch e.State {
		case hutch.BuildStarted:
			_, name, _ := strings.Cut(e.Name, "] ")
			names[e.Step] = name
		case hutch.BuildCached, hutch.BuildDone, hutch.BuildFailed:
			states[names[e.Step]] = e.State
		}
	}
	return states
}

// log returns the output of all commands.
func (o *built) log() string {
	var all []string
	for _, e := range o.events {
		if e.State == hutch.BuildLog || e.State == hutch.BuildWarning {
			all = append(all, e.Text)
		}
	}
	return strings.Join(all, "\n")
}

// paths returns the names of all files above the base, in order.
func (o *built) paths() []string {
	var all []string
	for name, h := range o.files {
		if h.Typeflag != tar.TypeDir {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// clean fails the test if a sandbox is left.
func (b *bed) clean(t testing.TB) {
	t.Helper()
	list, err := b.Sandboxes(t.Context(), hutch.Filter{})
	if err != nil || len(list) != 0 {
		t.Errorf("the builds leave %+v, %v", list, err)
	}
}

func show(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

func modeOf(h *tar.Header) string {
	if h == nil {
		return "nothing"
	}
	return strconv.FormatInt(h.Mode&0o7777, 8) + " " + strconv.Itoa(h.Uid) + " " + strconv.Itoa(h.Gid)
}

// TestSubordinate: a server without root that has subordinate ids builds on native, too.
func TestSubordinate(t *testing.T) {
	hutchtest.OpenTun(t)
	hutchtest.Subordinate(t, hutchtest.Pattern("TestCommands/native", "Test(Commands|Failures|Remote|KilledInABuild)/native"))
}
