// Package s3 starts an S3 service for a test: versitygw, whose buckets are folders.
package s3

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"hutch/internal/hutchtest"
)

const gateway = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// The access key of the service.
const (
	KeyID = "hutch-test"
	Key   = "hutch-test-secret"
)

// Service is a running service with the bucket "hutch".
type Service struct {
	Host   string        // HOST:PORT
	Client *minio.Client // client of its administrator
	End    func()
}

// Start starts a service, which ends with the test.
func Start(t *testing.T) *Service {
	t.Helper()
	program := Install(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{Host: free.Addr().String()}
	free.Close()
	root := filepath.Join(t.TempDir(), "buckets")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--quiet", "--port", s.Host, "posix", root)
	cmd.Env = []string{"ROOT_ACCESS_KEY=" + KeyID, "ROOT_SECRET_KEY=" + Key}
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.End = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	t.Cleanup(s.End)
	s.Client, err = minio.New(s.Host, &minio.Options{Creds: credentials.NewStaticV4(KeyID, Key, ""), Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for s.Client.MakeBucket(ctx, "hutch", minio.MakeBucketOptions{}) != nil {
		if ctx.Err() != nil {
			t.Fatal("the service does not answer")
		}
	}
	return s
}

// Install returns the program of the service. The program is kept next to Go's build cache, so that it is linked only
// once. A test that will start it without a network calls Install first.
func Install(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	dir := filepath.Join(cache, "hutch-test", filepath.Base(gateway))
	program := filepath.Join(dir, "versitygw")
	defer lock(t, dir)()
	if _, err := os.Stat(program); err == nil {
		return program
	}
	cmd := exec.Command("go", "install", gateway)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-trimpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		hutchtest.Skip(t, "go install %s: %v: %s", gateway, err, out)
	}
	return program
}

// lock prevents tests of other packages from writing the program while it is started.
func lock(t *testing.T, dir string) (unlock func()) {
	t.Helper()
	err := os.MkdirAll(dir, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { f.Close() }
}

// URL returns the URL of a prefix in the bucket "hutch".
func (s *Service) URL(prefix string) string {
	return "s3://hutch/" + prefix + "?region=us-east-1&endpoint=http://" + s.Host
}
