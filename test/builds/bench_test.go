package builds

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	docker "github.com/moby/moby/client"
	"github.com/prometheus/procfs"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/debian"
	"hutch/internal/hutchtest/dockerd"
)

// BenchmarkTemplate builds templates/python with Docker's engine and with Hutch on each runtime, by turns: first
// without any cached step, then with every step cached. It needs root, dockerd, debootstrap and the packages of Debian:
//
//	go test ./test/builds -run '^$' -bench Template -benchtime 3x -timeout 1h
func BenchmarkTemplate(b *testing.B) {
	text, err := os.ReadFile("../../templates/python/Dockerfile")
	if err != nil {
		b.Fatal(err)
	}
	e, beds := newEngine(b, dockerd.StartHere(b).Host), map[string]*bed{}
	const from = "debian:bookworm-slim"
	text = bytes.Replace(text, []byte("FROM "+from+"\n"), []byte("FROM "+from+"\nENV PATH="+debianPath+"\n"), 1)
	archive := func() ([]byte, error) { return archiveOf(bootstrapped(b)) }
	e.load(b, from, archive)
	for _, runtime := range hutchtest.Runtimes {
		beds[runtime] = newBed(b, runtime)
		beds[runtime].load(b, from, archive)
	}
	c := testCase{dockerfile: string(text), req: hutch.BuildRequest{
		Dockerfile: string(text), Limits: hutch.Limits{CPU: 2, Memory: 2048, Disk: 4096},
		Network: hutch.Network{Mode: hutch.NetworkAllowList, Allow: hutch.Rules("deb.debian.org")},
	}}
	for _, name := range []string{"fresh", "cached"} {
		again := name == "fresh"
		b.Run(name, func(b *testing.B) {
			here, there := map[string]time.Duration{}, time.Duration(0)
			for b.Loop() {
				c.req.NoCache = again
				there += timed(b, func() error { return e.run(b, c, docker.ImageBuildOptions{NetworkMode: "host", NoCache: again}) })
				for runtime, bed := range beds {
					here[runtime] += timed(b, func() error {
						_, err := bed.BuildImage(b.Context(), c.req, pack(b, nil), nil)
						return err
					})
				}
			}
			b.ReportMetric(there.Seconds()/float64(b.N), "s/docker")
			for runtime, took := range here {
				b.ReportMetric(took.Seconds()/float64(b.N), "s/"+runtime)
				b.ReportMetric(took.Seconds()/there.Seconds(), runtime+"/docker")
			}
		})
	}
}

// debianPath is the PATH of Debian's own image; the images of the other tests have a shorter PATH.
const debianPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func timed(b *testing.B, do func() error) time.Duration {
	b.Helper()
	began := time.Now()
	if err := do(); err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}

// bootstrapped writes a small Debian with apt, like the one in a registry.
func bootstrapped(b testing.TB) func(*tar.Writer) error {
	b.Helper()
	dir := filepath.Join(hutchtest.Dir(b), "root")
	if out, err := exec.Command("debootstrap", "--variant=minbase", "bookworm", dir, "http://deb.debian.org/debian").CombinedOutput(); err != nil {
		b.Fatalf("debootstrap: %v\n%s", err, out)
	}
	return func(w *tar.Writer) error {
		return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || path == dir {
				return err
			}
			return addFile(w, dir, path)
		})
	}
}

func addFile(w *tar.Writer, dir, path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&(fs.ModeDevice|fs.ModeSocket) != 0 {
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	if h.Name, err = filepath.Rel(dir, path); err != nil {
		return err
	}
	if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	text, err := os.ReadFile(path)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// BenchmarkSteps builds an image whose first step writes a lot, and whose second step writes one file. It reports the
// CPU time of the server without that of the commands:
//
//	go test ./test/builds -run '^$' -bench Steps -benchtime 1x
func BenchmarkSteps(b *testing.B) {
	bed := newBed(b, "native")
	bed.load(b, "localhost/python", func() ([]byte, error) { return archiveOf(debian.Write) })
	req := hutch.BuildRequest{
		Dockerfile: "FROM localhost/python\nENV PATH=/usr/bin:/bin\nSHELL [\"bash\", \"-c\"]\nRUN for i in 1 2 3 4; do cp -a /usr /usr$i; done\nRUN touch /done\n",
		NoCache:    true, Limits: hutch.Limits{CPU: 2, Memory: 2048, Disk: 4096},
	}
	began := cpuTime(b, bed.PID())
	for b.Loop() {
		if _, err := bed.BuildImage(b.Context(), req, pack(b, nil), nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((cpuTime(b, bed.PID())-began)/float64(b.N), "cpu-s/op")
}

// cpuTime returns the CPU time of a process, in seconds.
func cpuTime(b *testing.B, pid int) float64 {
	b.Helper()
	p, err := procfs.NewProc(pid)
	if err != nil {
		b.Fatal(err)
	}
	stat, err := p.Stat()
	if err != nil {
		b.Fatal(err)
	}
	return stat.CPUTime()
}

// BenchmarkTwenty reports how much disk space twenty images on one base take, without the base and their own layers of
// 1 MiB. It also reports how much their root file systems take; the server drops those when no sandbox uses them:
//
//	go test ./test/builds -run '^$' -bench Twenty -benchtime 1x
func BenchmarkTwenty(b *testing.B) {
	bed := newBed(b, "gvisor")
	bed.load(b, "localhost/python", func() ([]byte, error) { return archiveOf(debian.Write) })
	store := filepath.Join(bed.data, datadir.OCI)
	const images, own = 20, 1 << 20
	for b.Loop() {
		before, _ := taken(b, store)
		for i := range images {
			req := hutch.BuildRequest{Name: "localhost/own" + strconv.Itoa(i), Dockerfile: "FROM localhost/python\nCOPY own /own\n"}
			if _, err := bed.BuildImage(b.Context(), req, pack(b, files("own", randomText(own))), nil); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(before)/(1<<20), "MiB-base")
		kept, roots := taken(b, store)
		b.ReportMetric(float64(kept-before-images*own)/(1<<20), "MiB-beside")
		b.ReportMetric(float64(roots)/(1<<20), "MiB-roots")
	}
}

// taken returns how much disk space a store of images takes: for what it keeps, and for root file systems, which it can
// make again.
func taken(b *testing.B, dir string) (kept, roots int64) {
	b.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir():
			return nil
		case filepath.Ext(path) == ".erofs":
			roots += info.Size()
		default:
			kept += info.Size()
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return kept, roots
}
