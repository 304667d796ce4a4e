package images

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/debian"
)

// sleeper is a Python that has loaded some libraries, and waits.
const sleeper = `exec python3 -c "import asyncio, decimal, json, sqlite3, ssl, time; print('up', flush=True); time.sleep(9999)"`

// BenchmarkShared reports the memory of sandboxes, each with a Python, of one image and of as many images with the same
// programs. Sandboxes share the pages of files that they have in common; each is counted for its part of them. It needs
// root and control groups:
//
//	go test ./test/images -run '^$' -bench Shared -benchtime 1x
func BenchmarkShared(b *testing.B) {
	const sandboxes = 8
	at, err := serveRegistry()
	if err != nil {
		b.Fatal(err)
	}
	same, own := make([]string, sandboxes), make([]string, sandboxes)
	for i := range sandboxes {
		same[i], own[i] = python, fmt.Sprintf("own%d:1", i)
		err := publish(at, "library/"+own[i], v1.Config{Env: []string{"PATH=/usr/bin:/bin"}}, func(w *tar.Writer) error {
			return errors.Join(debian.Write(w), w.WriteHeader(&tar.Header{Name: "own" + strconv.Itoa(i), Mode: 0o644}))
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	for _, runtime := range hutchtest.Runtimes {
		b.Run(runtime, func(b *testing.B) {
			for b.Loop() {
				one, each := newBed(b, runtime).shares(b, same), newBed(b, runtime).shares(b, own)
				for what, m := range map[string]share{"one": one, "own": each} {
					b.ReportMetric(float64(m.all)/sandboxes/1024, "MiB-pss-"+what)
					b.ReportMetric(float64(m.files)/sandboxes/1024, "MiB-files-"+what)
				}
			}
		})
	}
}

// share is an amount of this machine's memory, in KiB.
type share struct{ all, files int }

var shareLine = regexp.MustCompile(`(?m)^(Pss|Pss_File):\s+(\d+) kB$`)

// shares makes a sandbox of each image, and returns what they take together.
func (b *bed) shares(t testing.TB, images []string) (sum share) {
	t.Helper()
	for _, image := range images {
		sb := b.make(t, image)
		p, err := b.StartProcess(t.Context(), sb.ID, hutch.ProcessRequest{Command: sleeper})
		if err != nil {
			t.Fatal(err)
		}
		if w, err := b.Wait(t.Context(), sb.ID, p.ID, hutch.WaitRequest{Text: "up", Timeout: 60}); err != nil || !w.Met {
			t.Fatalf("Python does not start: %+v, %v", w, err)
		}
	}
	pids := b.processes(t)
	for _, pid := range pids {
		text, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range shareLine.FindAllStringSubmatch(string(text), -1) {
			n, _ := strconv.Atoi(m[2])
			if m[1] == "Pss" {
				sum.all += n
			} else {
				sum.files += n
			}
		}
	}
	t.Logf("%d processes of %d sandboxes", len(pids), len(images))
	b.Empty(t)
	return sum
}

// processes lists the processes in all sandboxes.
func (b *bed) processes(t testing.TB) (pids []string) {
	t.Helper()
	seen := map[string]bool{}
	for _, group := range hutchtest.Groups(filepath.Join(b.data, datadir.Server, b.runtime)) {
		err := filepath.WalkDir(group, func(path string, _ os.DirEntry, err error) error {
			if err != nil || filepath.Base(path) != "cgroup.procs" {
				return err
			}
			text, err := os.ReadFile(path)
			for _, pid := range strings.Fields(string(text)) {
				if !seen[pid] {
					seen[pid] = true
					pids = append(pids, pid)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(pids) == 0 {
		t.Fatal("no process was found: it needs control groups")
	}
	return pids
}
