// Package builds keeps the programs in which gVisor sandboxes run. They are named by their content.
//
// A build is the programs hutch-runsc, hutch-gofer and hutch-agent of one version of Hutch. Only the build that saved
// the memory of a sandbox can restore it, because the memory contains the state of gVisor and of the agent. So each
// save names its build, and a server keeps the builds that saves need: an upgrade replaces the installed programs, but
// not these.
//
// The name of a build contains the digest of its programs. A build that came from another machine is used only if its
// content has that digest.
package builds

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/durable"
	"hutch/internal/tarfile"
)

const (
	agent = "hutch-agent"
	runsc = "hutch-runsc"
)

// programs are the files of a build. hutch-runsc starts hutch-gofer, which has to be in the same folder.
var programs = []string{agent, "hutch-gofer", runsc}

// most limits the size of a program, in bytes.
const most = 512 << 20

// Build has the paths of the programs of one build.
type Build struct {
	Name  string // empty for programs that are not kept
	Runsc string // the paths of programs
	Agent string
}

// Store is a folder of builds.
type Store struct {
	dir      string
	contract string

	mu        sync.Mutex
	checked   map[string]bool // builds whose content was verified
	installed string          // the build that Add returned
}

// Open returns the store in a folder, which it makes if it is missing. All builds with the same contract are used in
// the same way: they have the same protocol with the agent, and the same calls to gVisor.
func Open(dir, contract string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return &Store{dir: dir, contract: contract + "-", checked: map[string]bool{}}, nil
}

// Contract returns the prefix of the names of all builds that can be used here.
func (s *Store) Contract() string { return s.contract }

// fits reports whether a build can be used here, if its programs are here.
func (s *Store) fits(name string) bool {
	digest, ok := strings.CutPrefix(name, s.contract)
	b, err := hex.DecodeString(digest)
	return ok && err == nil && len(b) == sha256.Size && strings.ToLower(digest) == digest
}

// Get returns a build that is kept here. The error for a missing build says how to proceed without it.
func (s *Store) Get(name string) (Build, error) {
	if !s.fits(name) {
		return Build{}, hutch.Errorf(hutch.Conflict, "it was saved by programs that this version of Hutch cannot use (build %.20q)", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	dir := filepath.Join(s.dir, name)
	if !s.checked[name] {
		is, err := s.nameOf(func(program string) string { return filepath.Join(dir, program) })
		if errors.Is(err, fs.ErrNotExist) {
			return Build{}, hutch.Errorf(hutch.Conflict, "this server does not have the programs that saved it (build %.20s)", name)
		}
		if err != nil {
			return Build{}, err
		}
		if is != name {
			return Build{}, hutch.Errorf(hutch.Conflict, "the kept programs that saved it are damaged (build %.20s)", name)
		}
		for _, program := range programs { // a backup can lose permissions and times
			if err := settle(filepath.Join(dir, program)); err != nil {
				return Build{}, err
			}
		}
		s.checked[name] = true
	}
	return in(name, dir), nil
}

// settle gives a kept program its permissions and its time.
func settle(path string) error {
	return errors.Join(os.Chmod(path, 0o755), os.Chtimes(path, untouched, untouched))
}

func in(name, dir string) Build {
	return Build{Name: name, Runsc: filepath.Join(dir, runsc), Agent: filepath.Join(dir, agent)}
}

// NameOf returns the name of the installed programs.
func (s *Store) NameOf(runscPath, agentPath string) (string, error) {
	return s.nameOf(sources(runscPath, agentPath))
}

func (s *Store) nameOf(path func(program string) string) (string, error) {
	sum := digest{}
	for _, program := range programs {
		f, err := os.Open(path(program))
		if err != nil {
			return "", err
		}
		_, err = io.Copy(sum.of(program), f)
		f.Close()
		if err != nil {
			return "", err
		}
	}
	return s.contract + sum.String(), nil
}

// digest has the SHA-256 of each program.
type digest map[string]hash.Hash

func (d digest) of(program string) io.Writer {
	d[program] = sha256.New()
	return d[program]
}

func (d digest) String() string {
	all := sha256.New()
	for _, program := range programs {
		fmt.Fprintf(all, "%s %x\n", program, d[program].Sum(nil))
	}
	return hex.EncodeToString(all.Sum(nil))
}

// Add copies the installed programs into the store, and returns the build. If they have not changed since the last
// time, it copies nothing.
func (s *Store) Add(runscPath, agentPath string) (Build, error) {
	path := sources(runscPath, agentPath)
	last := installed{}
	text, err := os.ReadFile(s.index())
	if err == nil && json.Unmarshal(text, &last) != nil {
		last = installed{}
	}
	now := installed{Files: map[string]identity{}}
	for _, program := range programs {
		if now.Files[program], err = identify(path(program)); err != nil {
			return Build{}, err
		}
	}
	if now.Build = last.Build; !s.fits(last.Build) || !last.same(now) || !s.has(last.Build) {
		if now.Build, err = s.fill(func(program string) (io.ReadCloser, error) { return os.Open(path(program)) }, ""); err == nil {
			text, err = json.Marshal(now)
		}
		if err == nil {
			err = durable.Replace(s.index(), text)
		}
		if err != nil {
			return Build{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.installed = now.Build
	return in(now.Build, filepath.Join(s.dir, now.Build)), nil
}

// sources returns a function for the paths of the installed programs.
func sources(runscPath, agentPath string) func(program string) string {
	if real, err := filepath.EvalSymlinks(runscPath); err == nil {
		runscPath = real
	}
	return func(program string) string {
		switch program {
		case agent:
			return agentPath
		case runsc:
			return runscPath
		}
		return filepath.Join(filepath.Dir(runscPath), program)
	}
}

// index returns the path of the file that records the build of the installed programs.
func (s *Store) index() string { return filepath.Join(s.dir, "installed.json") }

type installed struct {
	Build string              `json:"build"`
	Files map[string]identity `json:"files"`
}

func (i installed) same(other installed) bool {
	return !slices.ContainsFunc(programs, func(p string) bool { return i.Files[p] != other.Files[p] })
}

// identity changes with the content of a file.
type identity struct {
	Path     string `json:"path"`
	Device   uint64 `json:"device"`
	Inode    uint64 `json:"inode"`
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"` // nanoseconds since 1970, like Changed
	Changed  int64  `json:"changed"`
}

func identify(path string) (identity, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return identity{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return identity{path, uint64(st.Dev), st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}, nil
}

func (s *Store) has(name string) bool {
	return !slices.ContainsFunc(programs, func(p string) bool {
		_, err := os.Stat(filepath.Join(s.dir, name, p))
		return err != nil
	})
}

// untouched is the modification time of all kept programs. gVisor compares it when it restores memory, also on another
// machine.
var untouched = time.Unix(1, 0)

// fill keeps the programs that open returns, and returns the name of the build. Unless want is empty, the name must
// equal it.
func (s *Store) fill(open func(program string) (io.ReadCloser, error), want string) (name string, err error) {
	half, err := os.MkdirTemp(s.dir, ".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(half)
	sum := digest{}
	for _, program := range programs {
		from, err := open(program)
		if err != nil {
			return "", err
		}
		err = keep(filepath.Join(half, program), io.TeeReader(from, sum.of(program)))
		if err := errors.Join(err, from.Close()); err != nil {
			return "", err
		}
	}
	if err := errors.Join(os.Chmod(half, 0o700), durable.Sync(half)); err != nil {
		return "", err
	}
	name = s.contract + sum.String()
	if want != "" && name != want {
		return "", hutch.Errorf(hutch.Denied, "the programs that came for the build %.20s are others: they are not used", want)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if dir := filepath.Join(s.dir, name); !s.has(name) {
		if err := errors.Join(os.RemoveAll(dir), os.Rename(half, dir), durable.Sync(s.dir)); err != nil {
			return "", err
		}
	}
	return name, nil
}

func keep(path string, from io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(f, io.LimitReader(from, most+1))
	if err == nil && n > most {
		err = fmt.Errorf("%s has more than %d MiB", filepath.Base(path), most>>20)
	}
	if err := errors.Join(err, settle(path), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return fmt.Errorf("programs cannot be executed in %s: %w", filepath.Dir(filepath.Dir(path)), err)
	}
	return nil
}

// Retain removes the builds that are not needed, except the one that Add returned.
func (s *Store) Retain(needed func(name string) bool) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs error
	for _, e := range entries {
		if e.IsDir() && !needed(e.Name()) && e.Name() != s.installed {
			delete(s.checked, e.Name())
			errs = errors.Join(errs, os.RemoveAll(filepath.Join(s.dir, e.Name())))
		}
	}
	return errs
}

// Send writes the programs of a build for Receive.
func (s *Store) Send(name string, w io.Writer) error {
	if _, err := s.Get(name); err != nil {
		return err
	}
	out := tar.NewWriter(w)
	for _, program := range programs {
		if err := tarfile.AddPath(out, filepath.Join(s.dir, name, program), tar.Header{Name: program, Mode: 0o755}); err != nil {
			return err
		}
	}
	return out.Close()
}

// Receive keeps a build that Send wrote. It verifies the programs by the build's name.
func (s *Store) Receive(name string, r io.Reader) error {
	if !s.fits(name) {
		_, err := s.Get(name)
		return err
	}
	in := tar.NewReader(r)
	_, err := s.fill(func(program string) (io.ReadCloser, error) {
		h, err := in.Next()
		if errors.Is(err, io.EOF) || err == nil && h.Name != program {
			return nil, hutch.Errorf(hutch.Denied, "what came for the build %.20s is not a build", name)
		}
		return io.NopCloser(in), err
	}, name)
	return err
}

// file is the name of the file in the folder of an instance or a save that contains the name of its build.
const file = "build"

// Mark notes in the folder of an instance or a save that it belongs to the build.
func (b Build) Mark(dir string) error {
	if b.Name == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, file), []byte(b.Name), 0o600)
}

// Marked returns the name of the build of an instance or a save; empty if there is no name.
func Marked(dir string) (string, error) {
	f, err := os.Open(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 200))
	return string(bytes.TrimSpace(text)), err
}
