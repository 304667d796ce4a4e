package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"hutch"
)

// archiveOf is a tar stream of files: names and contents in turns. A name can come twice.
func archiveOf(files ...string) *bytes.Buffer {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		w.WriteHeader(&tar.Header{Name: files[i], Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(files[i+1]))})
		io.WriteString(w, files[i+1])
	}
	w.Close()
	return &b
}

// If an archive has one name twice, the second file must not replace a layer whose digest was computed already.
// Otherwise, an image of another owner with that layer would have the content of the attacker.
func TestLoadedTwice(t *testing.T) {
	w := newWorld(t)
	plain := func(text string) string { return archiveOf("bin/sh", text).String() }
	real, forged := plain("real"), plain("evil")
	realDigest, forgedDigest := digestOf([]byte(real)), digestOf([]byte(forged))
	config := fmt.Sprintf(`{"os":"linux","architecture":%q,"rootfs":{"type":"layers","diff_ids":[%q]}}`, runtime.GOARCH, forgedDigest)
	list, err := json.Marshal([]dockerEntry{{Config: "config.json", RepoTags: []string{"x:1"}, Layers: []string{"layer.tar"}}})
	if err != nil {
		t.Fatal(err)
	}
	archive := archiveOf("layer.tar", real, "layer.tar", real, "other.tar", forged, "config.json", config, "manifest.json", string(list))
	loaded, err := w.store.Load(context.Background(), archive, LoadOptions{Owner: "mallory"})
	if err != nil {
		t.Fatal(err)
	}
	if path, err := w.store.Root(context.Background(), "mallory", loaded[0].Digest); err == nil {
		t.Errorf("the store made %s of a layer that is not the one of its digest", path)
	}
	if content, err := os.ReadFile(w.store.blobPath(realDigest)); err == nil && digestOf(content) != realDigest {
		t.Error("the store has other content under the digest of a layer")
	}
	if root := w.files(rootsDir); len(root) != 0 {
		t.Errorf("left: %s", strings.Join(root, " "))
	}
}

// The configuration of an image stays in the server's memory, so it is bounded for each image and each owner.
func TestMemoryOfRecords(t *testing.T) {
	w := newWorld(t)
	w.open(Options{Limits: Limits{Images: 1}})
	labelled := func(n int) v1.Image {
		image, err := mutate.Config(plainImage(t), v1.Config{Labels: map[string]string{"l": strings.Repeat("x", n)}})
		if err != nil {
			t.Fatal(err)
		}
		return image
	}
	w.push("huge:1", labelled(1<<20))
	w.push("a:1", labelled(1))
	w.push("b:1", labelled(2))
	if _, err := w.pull("huge:1", PullOptions{Owner: "ann"}); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("a megabyte of labels: %v", err)
	}
	for range 2 { // the second finds what is there
		if _, err := w.pull("a:1", PullOptions{Owner: "ann", Policy: hutch.PullAlways}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.pull("b:1", PullOptions{Owner: "ann"}); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("more images than are allowed: %v", err)
	}
	if _, err := w.pull("b:1", PullOptions{Owner: "bob"}); err != nil {
		t.Errorf("another owner: %v", err)
	}
}

// In memory a list of empty objects is fifty times as long as its text, so a document has a limit of values.
func TestMemoryOfDocuments(t *testing.T) {
	w := newWorld(t)
	w.open(Options{})
	many := func(begin, value, end string) []byte {
		return []byte(begin + strings.Repeat(value+",", 1_300_000) + value + end)
	}
	for what, read := range map[string]func() error{
		"an index": func() error {
			_, err := parseDocument(many(`{"schemaVersion":2,"manifests":[`, "{}", "]}"))
			return err
		},
		"a manifest": func() error {
			_, err := parseDocument(many(`{"schemaVersion":2,"config":{},"layers":[`, "{}", "]}"))
			return err
		},
		"a configuration": func() error {
			_, err := w.store.describe(nil, document{}, many(`{"history":[`, "{}", "]}"), platform{})
			return err
		},
		"a list of Docker's": func() error {
			_, err := w.store.Load(t.Context(), archiveOf("manifest.json", string(many("[", "{}", "]"))), LoadOptions{Owner: "ann"})
			return err
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := read()
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 || !errors.Is(err, hutch.Exhausted) {
			t.Errorf("%s of 4 MB takes %d MiB: %v", what, took>>20, err)
		}
	}
}
