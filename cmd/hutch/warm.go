package main

import (
	"context"
	"os"
	"time"

	"hutch/internal/image"
)

// warmDelay is how long after its start the server compiles ahead: until then it
// has other things to do, and a server that ends soon need not begin.
const warmDelay = 30 * time.Second

// warmCompilers compiles in the background what first programs would else
// compile in each sandbox. Sandboxes have it once the image is looked at again.
func (s *server) warmCompilers(context.Context) error {
	if s.coldCompilers {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
			return
		case <-time.After(warmDelay):
		}
		home, _ := os.UserHomeDir()
		began := time.Now()
		made, err := image.Warm(ctx, s.home.images(), image.HostOptions{Path: os.Getenv("PATH"), Home: home, Log: s.log})
		switch {
		case ctx.Err() != nil:
		case err != nil:
			s.log.Warn("the standard library of Go could not be compiled ahead; first Go programs take long", "err", err)
		case made:
			s.log.Info("compiled the standard library of Go for all sandboxes", "took", time.Since(began))
		}
	}()
	s.undo = append(s.undo, func() error {
		cancel()
		<-done
		return nil
	})
	return nil
}
