package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"hutch"
	"hutch/internal/image"
	"hutch/internal/wire"
)

// packTime bounds packing and unpacking, in ms.
const packTime = 10 * 60 * 1000

// pack writes the files of a sandbox to disk: aside first, then synced and
// renamed. The archive is made by tar inside the
// sandbox and is only ever read by tar inside a sandbox: to the daemon it is
// so many bytes, and not more than the sandbox may write.
func (e *Engine) pack(ctx context.Context, s *sandbox, agent *wire.Client, path string) (err error) {
	s.mu.Lock()
	room := int64(s.rec.Sandbox.Limits.Disk)<<20*5/4 + 64<<20
	s.mu.Unlock()
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("keep files: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	defer f.Close()
	argv := []string{"tar", "--create", "--sparse", "--file=-", "--directory=/", "--warning=no-all", "--ignore-failed-read"}
	for _, dir := range image.Writable {
		argv = append(argv, dir[1:])
	}
	err = e.tar(ctx, agent, argv, nil, func(o hutch.Output) error {
		if o.Stream != hutch.Stdout {
			return nil
		}
		if room -= int64(len(o.Data)); room < 0 {
			return errors.New("the archive is larger than the sandbox's disk limit")
		}
		_, err := f.Write(o.Data)
		return err
	})
	if err != nil {
		return fmt.Errorf("keep files: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("keep files: %w", err)
	}
	return os.Rename(f.Name(), path)
}

// unpack puts the files of a stopped sandbox, or of a snapshot, into a new place.
func (e *Engine) unpack(ctx context.Context, path string, agent *wire.Client) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("restore files: %w", err)
	}
	defer f.Close()
	argv := []string{"tar", "--extract", "--file=-", "--directory=/", "--warning=no-all", "--no-overwrite-dir"}
	if err := e.tar(ctx, agent, argv, f, nil); err != nil {
		return fmt.Errorf("restore files: %w", err)
	}
	return nil
}

func (e *Engine) tar(ctx context.Context, agent *wire.Client, argv []string, stdin io.Reader, out func(hutch.Output) error) error {
	start := wire.Start{ID: hutch.NewID("tar"), Argv: argv, Stdin: stdin != nil, TimeoutMS: packTime}
	exit, err := agent.Run(ctx, start, stdin, out)
	if err != nil {
		return err
	}
	if exit.Code > 1 || exit.TimedOut { // 1: some file changed or vanished meanwhile
		return hutch.Errorf(hutch.Unavailable, "tar ended with exit code %d", exit.Code)
	}
	return nil
}
