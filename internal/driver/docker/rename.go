package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/linux/names"
)

const renameTime = 10 * time.Second

// Rename gives the instance another host name, from outside, because no process inside has the right to do that.
func (i *instance) Rename(hostname string) error {
	ctx, cancel := context.WithTimeout(context.Background(), renameTime)
	defer cancel()
	p, err := i.process(ctx)
	if err != nil {
		return hutch.Errorf(hutch.Unsupported, "a sandbox of the runtime docker gets no other host name here").Because(err)
	}
	defer p.Close()
	if err := p.within(unix.CLONE_NEWUTS, func() error { return unix.Sethostname([]byte(hostname)) }); err != nil {
		return fmt.Errorf("rename an instance: %w", err)
	}
	return errors.Join(i.rewrite("hostname", hostname+"\n"), i.rewrite("hosts", names.Hosts(hostname)))
}

// rewrite changes a file that is bound into the container. It must not replace the file by a new one.
func (i *instance) rewrite(name, text string) error {
	file, err := os.OpenFile(filepath.Join(i.dir, name), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
