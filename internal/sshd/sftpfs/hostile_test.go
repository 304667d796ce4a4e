package sftpfs

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/membudget"
)

// endless is a service with endless files, in which the offset of a byte determines its value, and with folders of a
// thousand files. It accepts every write.
type endless struct{ hutch.Service }

func byteAt(offset int64) byte { return byte(offset * 7 >> 3) }

// piece is an odd number of bytes, as a stream can bring them.
const piece = 4097

func (endless) ReadFile(ctx context.Context, _ string, req hutch.ReadRequest, w io.Writer) (hutch.FileInfo, error) {
	b := make([]byte, piece)
	for at := req.Offset; ctx.Err() == nil; at += piece {
		for i := range b {
			b[i] = byteAt(at + int64(i))
		}
		if _, err := w.Write(b); err != nil {
			return hutch.FileInfo{}, err
		}
	}
	return hutch.FileInfo{}, ctx.Err()
}

func (endless) Stat(_ context.Context, _, path string) (hutch.FileInfo, error) {
	return hutch.FileInfo{Path: path, Type: hutch.Directory}, nil
}

func (endless) ListFiles(_ context.Context, _ string, _ hutch.ListRequest, out func(hutch.FileInfo) error) error {
	for i := range 1000 {
		if err := out(hutch.FileInfo{Name: strconv.Itoa(i), Type: hutch.RegularFile}); err != nil {
			return err
		}
	}
	return nil
}

func (endless) WriteFile(_ context.Context, _ string, _ hutch.WriteRequest, r io.Reader) (hutch.FileInfo, error) {
	_, err := io.Copy(io.Discard, r)
	return hutch.FileInfo{}, err
}

func (endless) Exec(_ context.Context, _ string, req hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
	_, err := io.Copy(io.Discard, req.Stdin)
	return hutch.ExecResult{}, err
}

func serverOf(t *testing.T, svc hutch.Service) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &server{Options: Options{Service: svc, Held: ctx, Open: func() (*membudget.Account, func()) { return nil, func() {} }}, ctx: ctx, writers: map[string]*writer{}}
	t.Cleanup(func() {
		cancel()
		s.tasks.Wait()
	})
	return s
}

// TestReadFarAhead: a client jumps ahead by as much as the window allows, and reads the right data.
func TestReadFarAhead(t *testing.T) {
	t.Parallel()
	r, err := serverOf(t, endless{}).newReader("/f")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const most = 511 * piece // the most whole pieces that are fewer than two windows
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 32<<10)
		for _, at := range []int64{0, window, most - int64(len(b)), most + window, most + 2*window, most} {
			n, err := r.ReadAt(b, at)
			if n != len(b) || err != nil || b[0] != byteAt(at) || b[n-1] != byteAt(at+int64(n)-1) {
				t.Errorf("at %d: %d bytes, %v", at, n, err)
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a read does not end")
	}
}

// TestManyEarlyWrites: how many writes wait for their turn is bounded, also when they have hardly any bytes.
func TestManyEarlyWrites(t *testing.T) {
	t.Parallel()
	w := &writer{s: serverOf(t, endless{}), path: "/f", release: func() {}, known: true, size: 1 << 30, early: map[int64][]byte{}}
	for i := range int64(2 * maxEarly) {
		if _, err := w.WriteAt(nil, 10+2*i); err != nil {
			t.Fatal(err)
		}
		if len(w.early) > maxEarly {
			t.Fatalf("%d writes wait", len(w.early))
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestListAtOnce: a client that asks for several parts of a list at once gets each file once.
func TestListAtOnce(t *testing.T) {
	t.Parallel()
	l, err := serverOf(t, endless{}).list("/")
	if err != nil {
		t.Fatal(err)
	}
	defer l.(io.Closer).Close()
	var mu sync.Mutex
	var names []string
	var tasks sync.WaitGroup
	for range 8 {
		tasks.Go(func() {
			for {
				to := make([]os.FileInfo, 10)
				n, err := l.ListAt(to, 0)
				mu.Lock()
				for _, info := range to[:n] {
					names = append(names, info.Name())
				}
				mu.Unlock()
				if errors.Is(err, io.EOF) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	tasks.Wait()
	slices.Sort(names)
	if len(names) != 1000 || len(slices.Compact(names)) != 1000 {
		t.Errorf("%d names, and not 1000", len(names))
	}
}
