package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/image"
)

var _ driver.Archiver = (*instance)(nil)

// stopAndPack stops all programs except the agent, which is the first process, and packs the folders in its arguments
// with the tar program of the image. The kernel stops all of them at once, so none can start another program
// meanwhile.
const stopAndPack = `kill -STOP -1; tar --create --sparse --file=- --directory=/ --warning=no-all --ignore-failed-read "$@"; code=$?; [ $code -le 1 ] || kill -CONT -1; exit $code`

// Archive implements driver.Archiver. Exit code 1 of tar means that a file changed meanwhile. Archive refuses sandboxes
// with an image, because bash and tar would be those of the image. They would run here as root with the agent's
// capabilities, and one of these can open any file of the host.
func (i *instance) Archive(ctx context.Context, w io.Writer) error {
	if i.record.Image {
		return hutch.Errorf(hutch.Unsupported, "the files of a docker sandbox with an image can only be kept by its agent")
	}
	if err := i.Thaw(ctx); err != nil { // nothing can be executed in a frozen container
		return err
	}
	command := []string{"/bin/bash", "-c", stopAndPack, "pack"}
	for _, dir := range image.Writable {
		command = append(command, dir[1:])
	}
	made, err := i.api.ExecCreate(ctx, i.record.Container, client.ExecCreateOptions{
		User: "0:0", Env: []string{"PATH=/usr/bin:/bin"}, WorkingDir: "/", AttachStdout: true, AttachStderr: true, Cmd: command,
	})
	if err != nil {
		return fmt.Errorf("archive the files of an instance: %w", err)
	}
	stream, err := i.api.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return fmt.Errorf("archive the files of an instance: %w", err)
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, stream.Close)()
	var said bytes.Buffer
	_, err = stdcopy.StdCopy(w, &limited{&said}, stream.Reader)
	ended, ierr := i.api.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
	if err := errors.Join(err, ierr); err != nil {
		return fmt.Errorf("archive the files of an instance: %w", err)
	}
	if ended.Running || ended.ExitCode > 1 {
		return fmt.Errorf("archive the files of an instance with tar: exit code %d: %.300q", ended.ExitCode, said.String())
	}
	return nil
}

// limited keeps the beginning of its input.
type limited struct{ kept *bytes.Buffer }

func (l *limited) Write(b []byte) (int, error) {
	const most = 4 << 10
	l.kept.Write(b[:min(len(b), most-l.kept.Len())])
	return len(b), nil
}
