package docker_test

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/docker"
	"hutch/internal/driver/drivertest"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/dockerd"
	"hutch/internal/image"
	"hutch/internal/wire"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

func newDriver(t *testing.T, dir string) *docker.Driver {
	t.Helper()
	d, err := docker.New(driver.Options{Dir: dir, Agent: hutchtest.Program(t, "hutch-agent")})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestContract(t *testing.T) {
	host := dockerd.StartHere(t).Host
	t.Setenv("DOCKER_HOST", host)
	if r := newDriver(t, hutchtest.Dir(t)).Check(t.Context()); !r.OK {
		t.Fatalf("the driver does not work: %+v", r.Findings)
	}
	drivertest.Run(t, drivertest.Config{
		Dir:  func(t *testing.T) string { return hutchtest.Dir(t) },
		New:  func(t *testing.T, dir string) driver.Driver { return newDriver(t, dir) },
		Root: hutchtest.Image(t),
		Kill: func(t *testing.T, d driver.Driver, id string) {
			api := dockerd.Client(t, host)
			all, err := api.ContainerList(t.Context(), client.ContainerListOptions{Filters: client.Filters{}.Add("label", "hutch.sandbox="+id)})
			if err != nil || len(all.Items) != 1 {
				t.Fatalf("the containers of %s: %v, %v", id, all.Items, err)
			}
			if _, err := api.ContainerKill(t.Context(), all.Items[0].ID, client.ContainerKillOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		Isolated:       true,
		ReadOnlyImages: true,
		Adopts:         true,
		Networked:      true,
		Limited:        []string{"memory", "pids", "disk"},
	})
}

// TestOthersAreSpared: Sweep removes what this driver has left behind, and nothing else in the engine. An image can set
// every label for its containers, so the driver does not rely only on labels to find containers, images and folders.
func TestOthersAreSpared(t *testing.T) {
	host := dockerd.StartHere(t).Host
	t.Setenv("DOCKER_HOST", host)
	api := dockerd.Client(t, host)
	importTheirs(t, api)
	put := func(name string, labels map[string]string) {
		t.Helper()
		config := &container.Config{Image: "theirs:1", Cmd: []string{"/none"}, Labels: labels}
		if _, err := api.ContainerCreate(t.Context(), client.ContainerCreateOptions{Name: name, Config: config}); err != nil {
			t.Fatal(err)
		}
	}
	base := hutchtest.Dir(t)
	dir, victim := filepath.Join(base, "docker"), filepath.Join(base, "victim")
	d := newDriver(t, dir)
	if r := d.Check(t.Context()); !r.OK { // a check leaves nothing behind
		t.Fatalf("%+v", r.Findings)
	}
	sum := sha256.Sum256([]byte(dir))
	ours := fmt.Sprintf("hutch-%x-", sum[:6])
	put("theirs", nil)
	put("neighbour", map[string]string{"hutch.folder": dir + "-2", "hutch.sandbox": "lost"})
	put("named-as-ours", map[string]string{"hutch.sandbox": "lost"})
	put("forged", map[string]string{"hutch.folder": dir, "hutch.sandbox": "lost"})
	put("forged-folder", map[string]string{"hutch.folder": dir, "hutch.sandbox": "../victim"})
	put("forged-all", map[string]string{"hutch.folder": dir})
	put(ours+"taken", nil)
	for _, name := range []string{victim, filepath.Join(dir, "taken"), filepath.Join(dir, "kept")} {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := d.Sweep(t.Context(), func(id string) bool { return id == "kept" }); n != 1 || err != nil {
		t.Errorf("%d were removed, not only the folder of a lost instance, %v", n, err)
	}
	for _, name := range []string{victim, filepath.Join(dir, "kept")} {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("a label led to a folder: %v", err)
		}
	}
	want := "/forged /forged-all /forged-folder /" + ours + "taken /named-as-ours /neighbour /theirs theirs:1"
	if got := inEngine(t, api); got != want {
		t.Errorf("the engine has %s, not %s", got, want)
	}
}

// importTheirs makes the image theirs:1, which has a label of Hutch.
func importTheirs(t *testing.T, api *client.Client) {
	t.Helper()
	var empty bytes.Buffer
	if err := tar.NewWriter(&empty).Close(); err != nil {
		t.Fatal(err)
	}
	source := client.ImageImportSource{Source: &empty, SourceName: "-"}
	answer, err := api.ImageImport(t.Context(), source, "theirs:1", client.ImageImportOptions{Changes: []string{"LABEL hutch.skeleton=/nowhere"}})
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	if text, err := io.ReadAll(answer); err != nil || bytes.Contains(text, []byte("error")) {
		t.Fatalf("%s, %v", text, err)
	}
}

// inEngine lists the containers and images of an engine.
func inEngine(t *testing.T, api *client.Client) string {
	t.Helper()
	var names []string
	containers, err := api.ContainerList(t.Context(), client.ContainerListOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range containers.Items {
		names = append(names, c.Names...)
	}
	images, err := api.ImageList(t.Context(), client.ImageListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range images.Items {
		names = append(names, i.RepoTags...)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestNoEngine: if the engine cannot be used, the finding names it and the fix. Sweep needs no engine if the driver has
// made nothing.
func TestNoEngine(t *testing.T) {
	for host, want := range map[string]string{
		"unix:///nonexistent/docker.sock": "/nonexistent/docker.sock", "tcp://192.0.2.1:2375": "on this host", "nonsense": "nonsense",
	} {
		t.Setenv("DOCKER_HOST", host)
		d := newDriver(t, t.TempDir()+"/docker")
		r := d.Check(t.Context())
		if r.OK || len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Detail, want) || !strings.Contains(r.Findings[0].Fix, "DOCKER_HOST") {
			t.Errorf("%s: %+v", host, r)
		}
		if n, err := d.Sweep(t.Context(), func(string) bool { return false }); n != 0 || err != nil {
			t.Errorf("%s: swept %d, %v", host, n, err)
		}
	}
}

// TestImagesThatAreGone: when the server removes an image, the engine removes it too, even while the server runs. No
// program of an image runs as root with the agent's capabilities; Archive would need that.
func TestImagesThatAreGone(t *testing.T) {
	host := dockerd.StartHere(t).Host
	t.Setenv("DOCKER_HOST", host)
	api := dockerd.Client(t, host)
	d := newDriver(t, filepath.Join(hutchtest.Dir(t), "docker"))
	evil := drivertest.ImageFile{Path: "/bin/bash", Mode: 0o755, Content: []byte("#!/.hutch/agent --version\n")}
	first, second := drivertest.WriteImage(t, []drivertest.ImageFile{evil}), drivertest.WriteImage(t, nil)
	create := func(path string) driver.Instance {
		t.Helper()
		root, err := image.FromEROFS(path, image.EROFSOptions{})
		if err != nil {
			t.Fatal(err)
		}
		spec := driver.Spec{ID: "one", Root: root, Limits: drivertest.Limits, Boot: wire.Boot{Token: rand.Text(), Home: "/", Dir: "/", Hostname: "one"}}
		inst, err := d.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err, errors.Unwrap(err))
		}
		return inst
	}
	inst := create(first)
	again, err := d.Recover(t.Context(), "one", inst.Handle())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []driver.Instance{inst, again} {
		var said bytes.Buffer
		if err := i.(driver.Archiver).Archive(t.Context(), &said); !errors.Is(err, hutch.Unsupported) || said.Len() > 0 {
			t.Errorf("a program of the image was started: %q, %v", said.String(), err)
		}
	}
	before := inEngine(t, api)
	if err := errors.Join(inst.Destroy(t.Context()), os.Remove(first)); err != nil {
		t.Fatal(err)
	}
	if err := create(second).Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := inEngine(t, api); strings.Count(before, "hutch-image:") != 1 || strings.Count(after, "hutch-image:") != 1 || strings.Contains(before, after) {
		t.Errorf("the engine had %s, and has %s", before, after)
	}
}
