package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"hutch"
	"hutch/internal/oci"
)

// A request that is too large is refused before anything is made of it, and leaves no record.
func TestBuildIsCheckedFirst(t *testing.T) {
	t.Parallel()
	s := New(Options{Build: func(context.Context, hutch.BuildRequest, io.Reader, func(hutch.BuildEvent) error, func([]byte, int) int) (oci.Image, error) {
		t.Error("it was built")
		return oci.Image{}, nil
	}})
	req := hutch.BuildRequest{Secrets: map[string]string{}}
	for i := range 1001 {
		req.Secrets[fmt.Sprint(i)] = "a secret"
	}
	_, err := s.BuildImage(t.Context(), req, nil, nil)
	if list, listErr := s.Builds(t.Context()); !errors.Is(err, hutch.Exhausted) || len(list) != 0 || listErr != nil {
		t.Errorf("%v, %+v, %v", err, list, listErr)
	}
}

// If a build panics, the server survives, and the list does not show the build as running for ever.
func TestBuildThatPanics(t *testing.T) {
	t.Parallel()
	s := New(Options{Build: func(context.Context, hutch.BuildRequest, io.Reader, func(hutch.BuildEvent) error, func([]byte, int) int) (oci.Image, error) {
		panic("a test")
	}})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		s.BuildImage(t.Context(), hutch.BuildRequest{}, nil, nil)
	}()
	if list, err := s.Builds(t.Context()); err != nil || len(list) != 1 || list[0].Status != hutch.BuildBroken || list[0].Error != errPanicked.Message {
		t.Errorf("%+v, %v", list, err)
	}
}

// arriving is a context whose client sends nothing.
type arriving struct{ interrupted chan struct{} }

func (a arriving) Read([]byte) (int, error) {
	<-a.interrupted
	return 0, errors.New("interrupted")
}

func (a arriving) Interrupt() { close(a.interrupted) }

// TestDeleteOfAStalledBuild: a build that waits for its client ends when its owner deletes it.
func TestDeleteOfAStalledBuild(t *testing.T) {
	t.Parallel()
	s := New(Options{Build: func(_ context.Context, _ hutch.BuildRequest, files io.Reader, _ func(hutch.BuildEvent) error, _ func([]byte, int) int) (oci.Image, error) {
		_, err := io.Copy(io.Discard, files)
		return oci.Image{}, err
	}})
	ended := make(chan error, 1)
	go func() {
		_, err := s.BuildImage(t.Context(), hutch.BuildRequest{}, arriving{make(chan struct{})}, nil)
		ended <- err
	}()
	var id string
	for end := time.Now().Add(20 * time.Second); id == "" && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if list, err := s.Builds(t.Context()); err == nil && len(list) == 1 {
			id = list[0].ID
		}
	}
	if err := s.DeleteBuild(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, hutch.Conflict) {
		t.Errorf("the build ended with %v", err)
	}
}

// TestBuildIsNotInterrupted: the end of a build does not interrupt the connection of its client.
func TestBuildIsNotInterrupted(t *testing.T) {
	t.Parallel()
	s := New(Options{Build: func(context.Context, hutch.BuildRequest, io.Reader, func(hutch.BuildEvent) error, func([]byte, int) int) (oci.Image, error) {
		return oci.Image{}, nil
	}})
	files := arriving{make(chan struct{})}
	if _, err := s.BuildImage(t.Context(), hutch.BuildRequest{}, files, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-files.interrupted:
		t.Error("it was interrupted")
	case <-time.After(100 * time.Millisecond):
	}
}
