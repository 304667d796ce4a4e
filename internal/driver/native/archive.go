package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/image"
)

var _ driver.Archiver = (*instance)(nil)

// Archive implements driver.Archiver. The instance's own tar runs only in the instance's user and mount namespaces. It
// has no more rights than the agent, and sees what the programs see; they can neither see it nor run meanwhile. An
// instance of an image is refused: its tar is that of the image, and nsenter would run it outside of the instance's
// processes and filter.
func (i *instance) Archive(ctx context.Context, w io.Writer) error {
	if i.record.Image {
		return hutch.Errorf(hutch.Unsupported, "the files of a native sandbox with an image can only be kept by its agent")
	}
	if err := i.Freeze(ctx); err != nil && i.group != nil {
		return err
	}
	args := []string{"--target", strconv.Itoa(i.record.PID), "--user", "--mount"}
	if !i.driver.root { // the instance has only one id
		args = append(args, "--preserve-credentials")
	}
	args = append(args, "--", "tar", "--create", "--sparse", "--file=-", "--directory=/", "--warning=no-all", "--ignore-failed-read")
	for _, dir := range image.Writable {
		args = append(args, dir[1:])
	}
	var said bytes.Buffer
	tar := exec.CommandContext(ctx, "nsenter", args...)
	tar.Env, tar.Stdout, tar.Stderr = []string{"PATH=/usr/bin:/bin"}, w, &said
	err := tar.Run()
	if e, ok := errors.AsType[*exec.ExitError](err); ok && e.ExitCode() == 1 { // a file changed meanwhile
		err = nil
	}
	if err != nil {
		return errors.Join(fmt.Errorf("archive the files of an instance with nsenter and tar: %w: %.300q", err, said.String()), i.Thaw(ctx))
	}
	return nil
}
