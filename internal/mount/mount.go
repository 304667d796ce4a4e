// Package mount puts the files of volumes into sandboxes, and saves them from there. The agent of a sandbox does the
// work inside. What the agent sends is untrusted, and is only ever unpacked in a sandbox.
package mount

import (
	"archive/tar"
	"context"
	"errors"
	"io"

	"hutch"
	"hutch/internal/wire"
)

// Content keeps the content of volumes.
type Content interface {
	// Read calls read with the content of a volume, which is a tar archive.
	Read(owner, name string, read func(io.Reader) error) error
	// Save replaces the content of a volume by the archive that pack writes. After an error the old content is
	// unchanged.
	Save(ctx context.Context, owner, name string, pack func(io.Writer) error) error
}

// Fill puts the files of a volume into an empty folder of the sandbox of agent. A read-only volume gets no write
// permissions, so that a program cannot change it by mistake. If a program changes it nevertheless, the changes are
// never saved.
func Fill(ctx context.Context, content Content, owner string, m hutch.VolumeMount, agent *wire.Client) error {
	if err := fill(ctx, content, owner, m, agent); err != nil {
		return explain(m, err)
	}
	return nil
}

func fill(ctx context.Context, content Content, owner string, m hutch.VolumeMount, agent *wire.Client) error {
	if err := agent.Mkdir(ctx, m.Path, true); err != nil {
		return err
	}
	info, err := agent.Stat(ctx, m.Path)
	if err == nil && info.Type != hutch.Directory { // no save would find files behind a link
		err = hutch.Errorf(hutch.Conflict, "it is a link to another folder")
	}
	if err != nil {
		return err
	}
	empty := true
	err = agent.Files(ctx, hutch.ListRequest{Path: m.Path, Hidden: true, Limit: 1}, func(hutch.FileInfo) error {
		empty = false
		return nil
	})
	if err == nil && !empty || errors.Is(err, hutch.Exhausted) { // the list is limited to one file
		err = hutch.Errorf(hutch.Conflict, "there are files already")
	}
	if err != nil {
		return err
	}
	err = content.Read(owner, m.Name, func(r io.Reader) error {
		to := hutch.UnpackRequest{Dir: m.Path, Format: hutch.Tar}
		if !m.ReadOnly {
			return agent.Unpack(ctx, to, r)
		}
		locked, stop := withoutWrites(r)
		defer stop()
		return agent.Unpack(ctx, to, locked)
	})
	if err == nil && m.ReadOnly {
		err = agent.Chmod(ctx, m.Path, hutch.FileMode(0o555))
	}
	return err
}

// explain adds the next step to the error for a volume that could not be put into a sandbox.
func explain(m hutch.VolumeMount, err error) error {
	switch kind := hutch.KindOf(err); kind {
	case hutch.Denied, hutch.Conflict, hutch.NotFound:
		return hutch.Errorf(kind, "the volume %q cannot be at %s: %s. Choose an empty folder that the user of the sandbox can create, such as /workspace/%[1]s", m.Name, m.Path, hutch.AsError(err).Message).
			Naming(hutch.AboutField, "volumes").Because(err)
	case hutch.Exhausted:
		return hutch.Errorf(kind, "the files of the volume %q do not fit into the sandbox: %s. Choose a higher disk limit; on the runtime native also more memory", m.Name, hutch.AsError(err).Message).Because(err)
	}
	return err
}

// withoutWrites returns a reader of the archive that r reads, without write permissions. stop ends the conversion.
func withoutWrites(r io.Reader) (locked io.Reader, stop func()) {
	out, in := io.Pipe()
	go func() { in.CloseWithError(lockEntries(r, in)) }()
	return out, func() { out.Close() }
}

func lockEntries(r io.Reader, w io.Writer) error {
	from, to := tar.NewReader(r), tar.NewWriter(w)
	for {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			return to.Close()
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeSymlink {
			h.Mode &^= 0o222
		}
		if err := to.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(to, from); err != nil {
			return err
		}
	}
}

// packTries is how many times a volume is packed if files shrink during the packing.
const packTries = 3

// Save saves the files of a volume from the sandbox of agent, where m names their folder.
func Save(ctx context.Context, content Content, owner string, m hutch.VolumeMount, agent *wire.Client) (err error) {
	for range packTries {
		err = content.Save(ctx, owner, m.Name, func(w io.Writer) error { return pack(ctx, agent, m, w) })
		if !errors.Is(err, hutch.Conflict) {
			break
		}
	}
	return err
}

func pack(ctx context.Context, agent *wire.Client, m hutch.VolumeMount, w io.Writer) error {
	info, err := agent.Stat(ctx, m.Path)
	if err != nil {
		return err
	}
	if info.Type != hutch.Directory {
		return hutch.Errorf(hutch.Conflict, "%s is no longer a folder: make it one again", m.Path)
	}
	return agent.Pack(ctx, hutch.PackRequest{Dir: m.Path, Format: hutch.Tar}, w)
}
