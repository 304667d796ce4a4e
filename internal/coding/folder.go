package coding

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"hutch"
	"hutch/internal/files"
)

// FromFolder brings a folder of this machine into the sandbox, with what git ignores, and with its history. Links are
// packed as links, and none is followed. Left out are the settings of git, which can hold passwords and name programs, its
// hooks, and a file .git that leads to a repository elsewhere.
func FromFolder(dir string) func(context.Context, hutch.Service, string, string) error {
	return func(ctx context.Context, svc hutch.Service, sandbox, folder string) error {
		all, packer := io.Pipe()
		some, chooser := io.Pipe()
		done := make(chan struct{}, 2)
		go func() {
			defer func() { done <- struct{}{} }()
			here := &files.FS{Dir: "."}
			packer.CloseWithError(here.Pack(ctx, "", hutch.PackRequest{Dir: dir, Format: hutch.Tar}, packer))
		}()
		go func() {
			defer func() { done <- struct{}{} }()
			err := choose(chooser, all)
			all.CloseWithError(err)
			chooser.CloseWithError(err)
		}()
		err := svc.Unpack(ctx, sandbox, hutch.UnpackRequest{Dir: folder, Format: hutch.Tar}, some)
		some.CloseWithError(errors.Join(errLeft, err))
		<-done
		<-done
		return err
	}
}

// FromArchive brings the files of an archive into the sandbox, as [FromFolder] does with a folder. The archive is
// unpacked inside the sandbox, and is not parsed anywhere else.
func FromArchive(r io.Reader) func(context.Context, hutch.Service, string, string) error {
	return func(ctx context.Context, svc hutch.Service, sandbox, folder string) error {
		in := bufio.NewReader(r)
		switch _, err := in.Peek(1); {
		case err == io.EOF:
			return hutch.Errorf(hutch.Invalid, "the archive has 0 bytes: send one with the files of the repository").Naming(hutch.AboutField, "archive")
		case err != nil:
			return err
		}
		if err := svc.Unpack(ctx, sandbox, hutch.UnpackRequest{Dir: folder}, in); err != nil {
			return err
		}
		res, err := svc.Exec(ctx, sandbox, hutch.ExecRequest{Command: leaveOutScript, Args: []string{folder}, Timeout: hutch.InSeconds(setUpTime), StreamOnly: true}, nil)
		if err == nil && !res.Success() {
			err = hutch.Errorf(hutch.Conflict, "the settings and hooks of git in the archive cannot be left out (exit code %d): send an archive without them", res.ExitCode)
		}
		return err
	}
}

// leaveOutScript removes what leftOut names. It runs in the sandbox before the agent does.
const leaveOutScript = `cd "$1" && find . \( -name .git ! -type d -o -path '*/.git/hooks' -o -path '*/.git/config*' -o -path '*/.git/commondir' -o \
	\( -path '*/.git/modules/*' -o -path '*/.git/worktrees/*' \) \( -name 'config*' -o -name hooks \) \) -prune -exec rm -rf {} +
`

var errLeft = errors.New("the sandbox takes no more files")

// choose copies an archive without the excluded files.
func choose(w io.Writer, r io.Reader) error {
	in, out := tar.NewReader(r), tar.NewWriter(w)
	for {
		h, err := in.Next()
		if err == io.EOF {
			_, err := io.Copy(io.Discard, r)
			return errors.Join(err, out.Close())
		}
		if err != nil {
			return err
		}
		if leftOut(path.Clean(h.Name), h.Typeflag == tar.TypeDir) {
			continue
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
}

func leftOut(name string, isDir bool) bool {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		if part != ".git" {
			continue
		}
		below := parts[i+1:]
		switch {
		case len(below) == 0:
			return !isDir
		case below[0] == "hooks", below[0] == "commondir", strings.HasPrefix(below[0], "config"): // commondir names another folder, with hooks and config
			return true
		case below[0] == "modules", below[0] == "worktrees": // folders of submodules, whose names can have slashes, and of other working trees
			return strings.HasPrefix(below[len(below)-1], "config") || strings.Contains(name, "/hooks/")
		}
		return false
	}
	return false
}
