// Package sftpfs serves the files of a sandbox over SFTP, as a translation to the verbs on files.
//
// SFTP reads and writes at offsets, with many requests in progress; the verbs are streams. So a handle has one stream,
// and turns requests that are nearly in order into it: a reader keeps a window of the data that it has read (reader),
// and a writer holds back data that arrives too early (writer). A request elsewhere in the file ends the stream and
// begins another one there. No file is held in memory.
//
// A new or truncated file is one WriteFile: it replaces the old file when the client closes it. If a connection breaks,
// the received part is kept, because clients can resume: then they append to it.
//
// SFTP has operations that the verbs do not have: links, times, owners, sizes, and writing into the middle of a file.
// These are small commands in the sandbox, so they need the scope exec.
package sftpfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"sync"
	"time"

	"github.com/pkg/sftp"

	"hutch"
	"hutch/internal/membudget"
)

// Options are the settings of a server of files. Service, Sandbox and Held are required.
type Options struct {
	Service hutch.Service
	Sandbox string
	User    string // user in the sandbox; "" for its own
	// Held is the context of writes. It outlives the client, so that the client's last bytes are written.
	Held context.Context
	// Open opens the memory account of a handle; nil means no limit.
	Open func() (*membudget.Account, func())
	// MaxTimeout is the longest that a write into the middle of a file can take.
	MaxTimeout time.Duration
}

// maxHandles bounds the files that a client has open at once.
const maxHandles = 100

// server serves the files of one session.
type server struct {
	Options
	ctx   context.Context
	tasks sync.WaitGroup

	mu      sync.Mutex
	handles int
	writers map[string]*writer // open, by path
}

// Serve answers a client until it leaves.
func Serve(ctx context.Context, client io.ReadWriteCloser, opt Options) error {
	if opt.Open == nil {
		opt.Open = func() (*membudget.Account, func()) { return nil, func() {} }
	}
	ctx, cancel := context.WithCancel(hutch.AsUser(ctx, opt.User))
	defer cancel()
	opt.Held = hutch.AsUser(opt.Held, opt.User)
	s := &server{Options: opt, ctx: ctx, writers: map[string]*writer{}}
	err := sftp.NewRequestServer(newFlow(client), sftp.Handlers{FileGet: s, FilePut: s, FileCmd: s, FileList: s}, sftp.WithStartDirectory("/workspace")).Serve()
	cancel()
	s.tasks.Wait()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// statuses are SFTP's statuses for errors. Its clients show their own text for these, not ours.
var statuses = map[hutch.Kind]error{
	hutch.NotFound: sftp.ErrSSHFxNoSuchFile, hutch.Denied: sftp.ErrSSHFxPermissionDenied, hutch.Unsupported: sftp.ErrSSHFxOpUnsupported,
}

// status returns an error as the client gets it.
func status(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	e := hutch.AsError(err)
	if s := statuses[e.Kind]; s != nil {
		return fmt.Errorf("%s (%w)", e.Message, s)
	}
	return errors.New(e.Message)
}

// take reserves a handle and the given number of bytes for it, if one more handle is allowed.
func (s *server) take(bytes int) (release func(), err error) {
	account, free := s.Open()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handles >= maxHandles || !account.Take(bytes) {
		free()
		return nil, errors.New("too many files are open: close some")
	}
	s.handles++
	return func() {
		free()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.handles--
	}, nil
}

// follow describes the target of a path, following links.
func (s *server) follow(name string) (hutch.FileInfo, error) {
	const most = 40 // as in the kernel
	for range most {
		info, err := s.Service.Stat(s.ctx, s.Sandbox, name)
		if err != nil || info.Type != hutch.Symlink {
			return info, err
		}
		if path.IsAbs(info.Target) {
			name = info.Target
		} else {
			name = path.Dir(info.Path) + "/" + info.Target
		}
	}
	return hutch.FileInfo{}, hutch.Errorf(hutch.Invalid, "%.200q has too many links", name)
}

// Filelist implements sftp.FileLister.
func (s *server) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if r.Method == "List" {
		return s.list(r.Filepath)
	}
	s.mu.Lock()
	w := s.writers[r.Filepath]
	s.mu.Unlock()
	info, err := s.follow(r.Filepath)
	if w != nil {
		info, err = w.info(info, err)
	}
	return one{info}, status(err)
}

// Lstat implements sftp.LstatFileLister.
func (s *server) Lstat(r *sftp.Request) (sftp.ListerAt, error) {
	info, err := s.Service.Stat(s.ctx, s.Sandbox, r.Filepath)
	return one{info}, status(err)
}

// Readlink implements sftp.ReadlinkFileLister.
func (s *server) Readlink(name string) (string, error) {
	info, err := s.Service.Stat(s.ctx, s.Sandbox, name)
	if err == nil && info.Type != hutch.Symlink {
		err = hutch.Errorf(hutch.Invalid, "%.200q is not a link", name)
	}
	return info.Target, status(err)
}

// one is the answer to a question about one file.
type one struct{ hutch.FileInfo }

func (o one) ListAt(to []os.FileInfo, offset int64) (int, error) {
	if offset > 0 || len(to) == 0 {
		return 0, io.EOF
	}
	to[0] = entry(o)
	return 1, nil
}

// entry is a file in the form of package os.
type entry struct{ hutch.FileInfo }

func (e entry) Name() string       { return e.FileInfo.Name }
func (e entry) Size() int64        { return e.FileInfo.Size }
func (e entry) ModTime() time.Time { return e.Modified }
func (e entry) IsDir() bool        { return e.Type == hutch.Directory }
func (e entry) Sys() any           { return nil }
func (e entry) Uid() uint32        { return uint32(e.UID) }
func (e entry) Gid() uint32        { return uint32(e.GID) }

func (e entry) Mode() os.FileMode {
	mode := os.FileMode(e.FileInfo.Mode & 0o777)
	for bit, is := range map[os.FileMode]bool{
		os.ModeDir: e.Type == hutch.Directory, os.ModeSymlink: e.Type == hutch.Symlink, os.ModeNamedPipe: e.Type == hutch.OtherFile,
		os.ModeSetuid: e.FileInfo.Mode&0o4000 != 0, os.ModeSetgid: e.FileInfo.Mode&0o2000 != 0, os.ModeSticky: e.FileInfo.Mode&0o1000 != 0,
	} {
		if is {
			mode |= bit
		}
	}
	return mode
}

// Filecmd implements sftp.FileCmder.
func (s *server) Filecmd(r *sftp.Request) error {
	switch r.Method {
	case "Setstat":
		return status(s.setAttributes(r))
	case "Rename":
		return status(s.Service.Move(s.ctx, s.Sandbox, r.Filepath, r.Target, false))
	case "Mkdir":
		return status(s.Service.Mkdir(s.ctx, s.Sandbox, r.Filepath, false))
	case "Rmdir":
		return status(s.run("rmdir", "--", r.Filepath))
	case "Remove":
		return status(s.Service.Delete(s.ctx, s.Sandbox, r.Filepath, false))
	case "Symlink":
		return status(s.run("ln", "-s", "-n", "--", r.Filepath, r.Target))
	case "Link":
		return status(s.run("ln", "-n", "--", r.Filepath, r.Target))
	}
	return sftp.ErrSSHFxOpUnsupported
}

// PosixRename implements sftp.PosixRenameFileCmder: a file replaces another. A folder is not replaced, because Move
// would remove everything in it.
func (s *server) PosixRename(r *sftp.Request) error {
	at, err := s.Service.Stat(s.ctx, s.Sandbox, r.Target)
	return status(s.Service.Move(s.ctx, s.Sandbox, r.Filepath, r.Target, err == nil && at.Type != hutch.Directory))
}

// attributes are the attributes of a file that a client sets.
type attributes struct {
	flags sftp.FileAttrFlags
	*sftp.FileStat
}

// setAttributes changes a file. Changes of a file that the client is writing wait until the file is closed, except a
// change of its size.
func (s *server) setAttributes(r *sftp.Request) error {
	a := attributes{r.AttrFlags(), r.Attributes()}
	if a.FileStat == nil {
		return hutch.Errorf(hutch.Invalid, "the attributes cannot be read")
	}
	s.mu.Lock()
	w := s.writers[r.Filepath]
	s.mu.Unlock()
	switch {
	case w != nil && a.flags.Size:
		return w.resize(s.ctx, a)
	case w != nil && w.later(a):
		return nil
	}
	return s.apply(s.ctx, r.Filepath, a)
}

// apply changes a file: its size first, and the times last.
func (s *server) apply(ctx context.Context, name string, a attributes) error {
	if a.flags.Size {
		if err := s.truncate(ctx, name, a.Size); err != nil {
			return err
		}
	}
	if a.flags.UidGid {
		if err := s.runWith(ctx, "chown", "--", fmt.Sprintf("%d:%d", a.UID, a.GID), name); err != nil {
			return err
		}
	}
	if a.flags.Permissions {
		if err := s.Service.Chmod(ctx, s.Sandbox, name, hutch.FileMode(a.FileStat.Mode&0o777)); err != nil {
			return err
		}
	}
	if a.flags.Acmodtime {
		if err := s.runWith(ctx, "touch", "-a", "-d", at(a.Atime), "--", name); err != nil {
			return err
		}
		return s.runWith(ctx, "touch", "-m", "-d", at(a.Mtime), "--", name)
	}
	return nil
}

// at returns a time as touch reads it.
func at(seconds uint32) string { return "@" + strconv.FormatUint(uint64(seconds), 10) }

// truncate changes the size of a file. Making a file empty needs no command.
func (s *server) truncate(ctx context.Context, name string, size uint64) error {
	if size > 0 {
		return s.runWith(ctx, "truncate", "-s", strconv.FormatUint(size, 10), "--", name)
	}
	if _, err := s.follow(name); err != nil {
		return err
	}
	_, err := s.Service.WriteFile(ctx, s.Sandbox, hutch.WriteRequest{Path: name}, eof{})
	return err
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

func (s *server) run(words ...string) error { return s.runWith(s.ctx, words...) }

// commandTime bounds the small commands.
const commandTime = hutch.Seconds(30)

// runWith runs a command in the sandbox.
func (s *server) runWith(ctx context.Context, words ...string) error {
	return s.runStream(ctx, commandTime, nil, words...)
}

// runStream runs a command that reads a stream.
func (s *server) runStream(ctx context.Context, limit hutch.Seconds, in io.Reader, words ...string) error {
	res, err := s.Service.Exec(ctx, s.Sandbox, hutch.ExecRequest{
		Command: hutch.CommandLine(words...), Dir: "/", User: s.User, Stdin: in, Timeout: limit, MaxOutput: 4 << 10, Env: map[string]string{"LC_ALL": "C"},
	}, nil)
	switch {
	case err != nil:
		return err
	case res.TimedOut:
		return hutch.Errorf(hutch.Exhausted, "%s took too long", words[0])
	case res.ExitCode != 0:
		return hutch.Errorf(hutch.Conflict, "%.500s", res.Stderr)
	}
	return nil
}
