package rootfs

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// folderLayer packs a folder of this machine as a layer, as a build does.
func folderLayer(b *testing.B, dir string) Layer {
	b.Helper()
	var packed bytes.Buffer
	sum := sha256.New()
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		b.Fatal(err)
	}
	w := tar.NewWriter(io.MultiWriter(z, sum))
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		b.Fatal(err)
	}
	return Layer{"sha256:test", "sha256:" + hex.EncodeToString(sum.Sum(nil)), func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(packed.Bytes())), nil
	}}
}

// BenchmarkWrite makes the file of a large layer and a small layer over it: from both layers, and from the file of the
// large layer and the small layer.
func BenchmarkWrite(b *testing.B) {
	layers := []Layer{folderLayer(b, "/usr/bin"), folderLayer(b, "/usr/include")}
	o := Options{Limits: Limits{Bytes: 32 << 30, Entries: 300_000, Names: 300_000 * 256, Path: 4095, Ratio: 200}}
	b.Run("of all layers", func(b *testing.B) { benchmarkWrite(b, layers, o) })
	b.Run("of a base", func(b *testing.B) {
		base, err := write(b, layers[:1], o)
		if err != nil {
			b.Fatal(err)
		}
		if o.Base, err = os.Open(base); err != nil {
			b.Fatal(err)
		}
		defer o.Base.Close()
		benchmarkWrite(b, layers[1:], o)
	})
}

func benchmarkWrite(b *testing.B, layers []Layer, o Options) {
	var began, ended syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &began)
	for b.Loop() {
		path, err := write(b, layers, o)
		if err != nil {
			b.Fatal(err)
		}
		os.Remove(path)
	}
	syscall.Getrusage(syscall.RUSAGE_SELF, &ended)
	cpu := ended.Utime.Nano() + ended.Stime.Nano() - began.Utime.Nano() - began.Stime.Nano()
	b.ReportMetric(float64(cpu)/1e9/float64(b.N), "cpu-s/op")
}
