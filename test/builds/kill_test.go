package builds

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/disk"
)

// killedText is the Dockerfile of a build that is killed while it copies, while a command runs, and while the files of
// that command are packed.
const killedText = "FROM localhost/shell\nCOPY noise /noise\nRUN echo ready && dd if=/dev/urandom of=/big bs=1M count=8 && echo written\nRUN cat /noise /big > /both && sleep 1\n"

// At whatever moment of a build a server is killed: the next server keeps no sandbox, image or file of the build, and
// can build.
func TestKilledInABuild(t *testing.T) { each(t, testKilledInABuild) }

func testKilledInABuild(t *testing.T, runtime string) {
	dir := hutchtest.Dir(t)
	b := newBedIn(t, runtime, dir)
	b.load(t, shell, shellBase)
	b.End(t)
	for _, kill := range []struct {
		name string
		when func(e hutch.BuildEvent) bool
	}{
		{"copy", func(e hutch.BuildEvent) bool { return strings.Contains(e.Name, "COPY noise") }},
		{"command", func(e hutch.BuildEvent) bool { return e.Text == "ready" }},
		{"layer", func(e hutch.BuildEvent) bool { return e.Text == "written" }},
	} {
		t.Run(kill.name, func(t *testing.T) {
			b.killed(t, kill.when)
			b.afterKill(t)
		})
	}
}

// killed starts the server, begins a build, and kills the server a moment after an event for which when returns true.
func (b *bed) killed(t *testing.T, when func(hutch.BuildEvent) bool) {
	t.Helper()
	b.start(t)
	killed := make(chan bool)
	kill := sync.OnceFunc(func() {
		time.AfterFunc(20*time.Millisecond, func() { b.Kill(); close(killed) })
	})
	noise := files("noise", randomText(4<<20))
	_, err := b.BuildImage(t.Context(), hutch.BuildRequest{Name: "localhost/half", Dockerfile: killedText}, pack(t, noise), func(e hutch.BuildEvent) error {
		if when(e) {
			kill()
		}
		return nil
	})
	if err == nil {
		t.Error("the build ends well")
	}
	select {
	case <-killed:
	case <-time.After(time.Minute):
		b.Kill()
		t.Errorf("the server was not killed; the build ends with %v", err)
	}
}

// afterKill starts the next server, examines the leftovers, and builds.
func (b *bed) afterKill(t *testing.T) {
	b.start(t)
	defer b.End(t)
	b.clean(t)
	if list, err := b.Images(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("the images are %+v, %v", list, err)
	}
	b.noHalf(t)
	o, err := b.build(t, hutch.BuildRequest{Dockerfile: killedText}, files("noise", "quiet"))
	if err != nil || len(o.text["both"]) != 8<<20+len("quiet") {
		t.Errorf("the next build: %v; /both has %d bytes", err, len(o.text["both"]))
	}
	if err := b.DeleteImage(t.Context(), o.ID); err != nil {
		t.Error(err)
	}
	b.clean(t)
}

// noHalf fails the test if the store of images contains something unfinished.
func (b *bed) noHalf(t *testing.T) {
	t.Helper()
	if left, err := os.ReadDir(filepath.Join(b.data, datadir.OCI) + "/tmp"); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func randomText(size int) string {
	b := make([]byte, size)
	rand.Read(b)
	return string(b)
}

// A build that fills the disk ends with an error that says so, and frees all the space that it used.
func TestFullDisk(t *testing.T) { each(t, testFullDisk) }

func testFullDisk(t *testing.T, runtime string) {
	dir := hutchtest.Dir(t)
	images := filepath.Join(dir, "data", datadir.OCI)
	if err := os.MkdirAll(images, 0o700); err != nil {
		t.Fatal(err)
	}
	size := "186m"
	if runtime == "native" {
		size = "320m" // an image on a file system that is in memory cannot be mounted, so its files are unpacked
	}
	disk.Shrink(t, images, size)
	b := newBedIn(t, runtime, dir)
	t.Cleanup(func() { b.End(t) }) // before the disk is removed
	b.load(t, shell, shellBase)
	small := hutch.BuildRequest{Name: "localhost/small", Dockerfile: "FROM localhost/shell\nRUN echo 1 > /one\n"}
	for name, c := range map[string]struct {
		dockerfile string
		files      []entry
	}{
		"context": {"FROM localhost/shell\nCOPY a /a\n", files("a", randomText(120<<20))},
		"layer":   {"FROM localhost/shell\nCOPY a /a\nCOPY a /b\n", files("a", randomText(40<<20))},
		"command": {"FROM localhost/shell\nRUN dd if=/dev/urandom of=/big bs=1M count=100\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := b.build(t, hutch.BuildRequest{Name: "localhost/failed", Dockerfile: c.dockerfile}, c.files)
			if !errors.Is(err, hutch.Exhausted) || strings.Contains(err.Error(), dir) {
				t.Errorf("the error is %v\n%s", err, o.log())
			}
			if _, err := b.Image(t.Context(), "localhost/failed"); !errors.Is(err, hutch.NotFound) {
				t.Errorf("there is an image: %v", err)
			}
			b.clean(t)
			b.noHalf(t)
			if o, err := b.build(t, small, nil); err != nil || o.text["one"] != "1\n" {
				t.Errorf("the next build: %v\n%s", err, o.log())
			}
		})
	}
}
