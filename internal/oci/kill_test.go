package oci

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"
)

// killedEnv makes the test binary run as the server that TestKilled kills. Its value is the folder of the store and
// the host of the registry.
const killedEnv = "HUTCH_TEST_KILLED_STORE"

// TestKilledServer is that server; without the variable it is skipped. It pulls, makes roots, moves names and removes images until it is killed.
func TestKilledServer(t *testing.T) {
	var dir, host string
	if fmt.Sscan(os.Getenv(killedEnv), &dir, &host); dir == "" {
		return // TestKilled starts it
	}
	s, err := Open(dir, Options{Registries: map[string]Registry{host: {Private: true, Insecure: true}}})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("open")
	for i := 0; ; i++ {
		ref := Reference{registry: host, repository: fmt.Sprintf("i%d", i%4), tag: "1"}
		name := Reference{registry: local, repository: "moves", tag: "1"}
		image, err := s.Pull(context.Background(), ref, PullOptions{Owner: "ann"})
		if err == nil {
			_, err = s.Root(context.Background(), "ann", image.Digest)
		}
		if err == nil {
			err = s.Tag("ann", ref, name)
		}
		if err == nil && i%2 == 0 {
			err = s.Remove("ann", Reference{digest: image.Digest})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Whenever the server is killed, the next server has only complete images, each name once, and nothing that is not
// needed.
func TestKilled(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.push(fmt.Sprintf("i%d:1", i), imageOf(t, layerOf(t, "same", noise(1<<20, "s")), layerOf(t, "own", noise(1<<20, fmt.Sprint(i)))))
	}
	w.push("i3:1", imageOf(t, layerOf(t, "same", noise(1<<20, "s")))) // the others are made from its root file system
	for range 12 {
		w.store.Close()
		killAServer(t, w)
		w.open(Options{})
		names := map[Reference]int{}
		for _, image := range w.store.Images("ann") {
			if _, err := w.store.Root(context.Background(), "ann", image.Digest); err != nil {
				t.Errorf("%v: %v", image.References, err)
			}
			for _, n := range image.References {
				if names[n]++; names[n] > 1 {
					t.Errorf("two images are %s", n)
				}
			}
		}
		if left := w.files(tempDir); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	}
	for _, image := range w.store.Images("ann") {
		if err := w.store.Remove("ann", Reference{digest: image.Digest}); err != nil {
			t.Error(err)
		}
	}
	if left := w.files(blobsDir, rootsDir, recordsDir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// killAServer starts the server, waits until it has begun, and kills it a little later.
func killAServer(t *testing.T, w *world) {
	server := exec.Command(os.Args[0], "-test.run", "^TestKilledServer$")
	server.Env = append(os.Environ(), killedEnv+"="+w.dir+" "+w.host)
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	defer server.Process.Kill()
	var word string
	if fmt.Fscan(out, &word); word != "open" {
		t.Fatalf("the server says %q", word)
	}
	time.Sleep(rand.N(100 * time.Millisecond)) // so that the kill can come at any point
}
