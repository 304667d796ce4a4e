package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
)

func newFSEdit(h *home, std streams) *cobra.Command {
	return &cobra.Command{
		Use: "edit SANDBOX PATH", Short: "Edit a file in the editor of this machine ($VISUAL, $EDITOR or vi)",
		Long: `Edit a file in the editor of this machine: $VISUAL, $EDITOR or vi. It is written
back when the editor ends, unless it was changed in the sandbox meanwhile. A
file that is not there is made.
` + remoteHelp,
		Args: cobra.ExactArgs(2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			return edit(ctx, svc, args[0], args[1], std)
		}),
	}
}

func edit(ctx context.Context, svc *client.Client, id, p string, std streams) error {
	was, there, err := current(ctx, svc, id, p)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "hutch-edit-")
	if err != nil {
		return err
	}
	draft := filepath.Join(dir, filepath.Base(path.Clean("/"+p))) // editors choose the language by the file's name
	now, err := change(ctx, draft, was, std)
	if err == nil && bytes.Equal(now, was) {
		fmt.Fprintln(std.err, "nothing was changed")
	} else if err == nil {
		err = writeBack(ctx, svc, id, hutch.WriteRequest{Path: p, Create: !there, Parents: true}, was, now)
		if err != nil {
			return fmt.Errorf("%w\nyour text is in %s", err, draft)
		}
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// maxEdit is the largest file that goes into an editor, in bytes.
const maxEdit = 64 << 20

// current returns the content of a file, and whether it exists.
func current(ctx context.Context, svc *client.Client, id, p string) ([]byte, bool, error) {
	var b bytes.Buffer
	_, err := svc.ReadFile(ctx, id, hutch.ReadRequest{Path: p, Length: maxEdit + 1}, &b)
	switch {
	case errors.Is(err, hutch.NotFound):
		_, err = svc.Sandbox(ctx, id) // either the file or the sandbox does not exist
		return nil, false, err
	case err == nil && b.Len() > maxEdit:
		err = hutch.Errorf(hutch.Exhausted, "%.200q is larger than %d MiB: copy it with hutch cp", p, maxEdit>>20)
	}
	return b.Bytes(), true, err
}

// change lets a person edit a text, in a file with that name.
func change(ctx context.Context, draft string, was []byte, std streams) ([]byte, error) {
	if err := os.WriteFile(draft, was, 0o600); err != nil {
		return nil, err
	}
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi")
	cmd := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, editor, draft) // the editor can have arguments
	cmd.Stdin, cmd.Stdout, cmd.Stderr = std.in, std.out, std.err
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("the editor %s: %w; nothing is written", editor, err)
	}
	return os.ReadFile(draft)
}

func writeBack(ctx context.Context, svc *client.Client, id string, req hutch.WriteRequest, was, now []byte) error {
	meanwhile, there, err := current(ctx, svc, id, req.Path)
	if err == nil && (there == req.Create || !bytes.Equal(meanwhile, was)) {
		err = hutch.Errorf(hutch.Conflict, "%.200q was changed in the sandbox meanwhile, and is left as it is: edit it again", req.Path)
	}
	if err != nil {
		return err
	}
	_, err = svc.WriteFile(ctx, id, req, bytes.NewReader(now))
	return err
}
