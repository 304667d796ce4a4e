package bridge

import (
	"archive/tar"
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"hutch"
)

type (
	verbs       = hutch.Service
	volumeVerbs = hutch.Volumes

	// labelled is a service with one sandbox. Several mounts are checked there before the first of them is recorded.
	labelled struct {
		verbs
		meet   sync.WaitGroup
		mu     sync.Mutex
		labels map[string]string
	}
	empty struct{ volumeVerbs }
)

func (s *labelled) Sandboxes(context.Context, hutch.Filter) ([]hutch.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []hutch.Sandbox{{ID: "box", Labels: s.labels}}, nil
}

func (s *labelled) ListFiles(context.Context, string, hutch.ListRequest, func(hutch.FileInfo) error) error {
	return nil
}

func (s *labelled) Unpack(_ context.Context, _ string, _ hutch.UnpackRequest, r io.Reader) error {
	s.meet.Done()
	s.meet.Wait()
	_, err := io.Copy(io.Discard, r)
	return err
}

func (s *labelled) Update(_ context.Context, _ string, req hutch.UpdateRequest) (hutch.Sandbox, error) {
	time.Sleep(10 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.labels = req.Labels
	return hutch.Sandbox{}, nil
}

func (empty) ReadVolume(_ context.Context, _, _ string, w io.Writer) error {
	return tar.NewWriter(w).Close()
}

// Two mounts at the same time are both known afterwards: a forgotten mount would not be copied back.
func TestMountsAtOnce(t *testing.T) {
	t.Parallel()
	svc := &labelled{}
	h := NewHandler(svc, Options{Volumes: empty{}})
	defer h.Close()
	paths := []string{"/workspace/a", "/workspace/b", "/workspace/c"}
	svc.meet.Add(len(paths))
	var mounts sync.WaitGroup
	for _, at := range paths {
		mounts.Go(func() {
			if err := h.mountVolume(t.Context(), "box", "data", at, false); err != nil {
				t.Errorf("%s: %v", at, err)
			}
		})
	}
	mounts.Wait()
	if len(svc.labels) != len(paths) {
		t.Errorf("the sandbox has the labels %v", svc.labels)
	}
}
