package builds

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hutch"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/server"
)

// hugeFile is the size of a file that is too large for an image, in bytes. On disk it is a hole.
const hugeFile = 10 << 30

// A context with a file that is too large is refused before the file is sent, and nothing of the context is kept. This
// holds for the command and over HTTP, plain and compressed.
func TestHugeContext(t *testing.T) {
	b := &bed{data: filepath.Join(hutchtest.Dir(t), "data"), runtime: "native"}
	b.Process = server.Run(t, server.Options{Data: b.data, Flags: []string{"--pool", "0", "--runtime", b.runtime, "--max-image", "64"}})
	t.Cleanup(func() { b.End(t) })
	before := b.peak(t)
	refused := func(t *testing.T, began time.Time, text string) {
		t.Helper()
		for _, want := range []string{"more than 64 MiB", `"models/huge", which has 10240 MiB`, ".dockerignore"} {
			if !strings.Contains(text, want) {
				t.Errorf("the error does not say %q: %s", want, text)
			}
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("the refusal took %v", took)
		}
		if list, err := b.Images(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("the images are %+v, %v", list, err)
		}
		b.clean(t)
		b.noHalf(t)
	}
	t.Run("command", func(t *testing.T) { b.hugeFolder(t, refused) })
	for name, compress := range map[string]bool{"plain": false, "compressed": true} {
		t.Run(name, func(t *testing.T) {
			began, sent := time.Now(), &counter{r: hugeArchive(t, compress)}
			_, err := b.BuildImage(t.Context(), hutch.BuildRequest{Dockerfile: "FROM scratch\nCOPY . /\n"}, sent, nil)
			if !errors.Is(err, hutch.Exhausted) || hutch.AsError(err).Limit() != "image bytes" {
				t.Fatalf("the error is %v", err)
			}
			refused(t, began, err.Error())
			if sent.n > 16<<20 {
				t.Errorf("%d MiB were sent before the refusal", sent.n>>20)
			}
		})
	}
	if grown := b.peak(t) - before; grown > 128<<20 {
		t.Errorf("the server took %d MiB more memory", grown>>20)
	}
}

// hugeFolder uses the command to build a folder with the huge file, and then the folder without it.
func (b *bed) hugeFolder(t *testing.T, refused func(*testing.T, time.Time, string)) {
	dir := t.TempDir()
	huge := filepath.Join(dir, "models", "huge")
	err := errors.Join(os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\nCOPY . /\n"), 0o644),
		os.Mkdir(filepath.Dir(huge), 0o755), os.WriteFile(huge, nil, 0o644), os.Truncate(huge, hugeFile))
	if err != nil {
		t.Fatal(err)
	}
	build := func() (string, *exec.Cmd, error) {
		cmd := exec.CommandContext(t.Context(), hutchtest.Program(t, "hutch"), "build", "-t", "localhost/huge", dir)
		cmd.Env = append(os.Environ(), "HUTCH_URL="+b.URL, "HUTCH_TOKEN="+server.Token)
		out, err := cmd.CombinedOutput()
		return string(out), cmd, err
	}
	began := time.Now()
	out, cmd, err := build()
	if err == nil {
		t.Fatalf("the build ends well: %s", out)
	}
	refused(t, began, out)
	if most := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss; most > 256<<10 {
		t.Errorf("the command took %d MiB of memory", most>>10)
	}
	if err := os.WriteFile(filepath.Join(dir, ".dockerignore"), []byte("models\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, _, err := build(); err != nil {
		t.Errorf("without the file: %v\n%s", err, out)
	}
	if err := b.DeleteImage(t.Context(), "localhost/huge"); err != nil {
		t.Error(err)
	}
}

// hugeArchive returns a context with the huge file.
func hugeArchive(t *testing.T, compress bool) io.Reader {
	r, w := io.Pipe()
	t.Cleanup(func() { r.Close() })
	go func() {
		out, end := io.Writer(w), func() error { return nil }
		if compress {
			z := gzip.NewWriter(w)
			out, end = z, z.Close
		}
		a := tar.NewWriter(out)
		err := a.WriteHeader(&tar.Header{Name: "models/huge", Mode: 0o644, Size: hugeFile})
		if err == nil {
			_, err = io.CopyN(a, zeros{}, hugeFile)
		}
		w.CloseWithError(errors.Join(err, a.Close(), end()))
	}()
	return r
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// counter counts the bytes that are read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

var peakLine = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)

// peak returns the peak memory of the server, in bytes.
func (b *bed) peak(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(b.PID()) + "/status")
	found := peakLine.FindSubmatch(text)
	if err != nil || found == nil {
		t.Fatalf("%v: %s", err, bytes.TrimSpace(text))
	}
	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
