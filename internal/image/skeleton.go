package image

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// systemFolders are the folders of / that hold programs and libraries. On
// most hosts all but usr are links into it.
var systemFolders = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// masks are visible files and folders that can hold credentials, or state of the host; an empty one is mounted over
// each. The names are relative to /usr and to every visible prefix.
var masks = []string{
	"local/etc", "etc/npmrc", "etc/gitconfig", "etc/pip.conf", "pip.conf", "lib/node_modules/npm/npmrc",
	"etc/Renviron.site", "lib/R/etc/Renviron.site",
	".npmrc", ".netrc", ".pypirc", ".condarc", ".env", ".git-credentials", "credentials.toml",
	".yarnrc", ".yarnrc.yml", ".config", ".pip", "auth.json", "nuget.config", "NuGet.Config", "conf/settings.xml",
}

// skeleton is an image being made.
type skeleton struct {
	Root         // Dir is the temporary path
	place string // its final path
}

// buildHost makes the host image in tmp, to be moved to place.
func buildHost(ctx context.Context, tmp, place string, opt HostOptions, found []foundTool) (Root, error) {
	s := &skeleton{Root: Root{Dir: filepath.Join(tmp, "root")}, place: place}
	for _, step := range []func() error{
		s.makeFolders,
		func() error { return s.showSystem("/") },
		s.writeEtc,
		s.copyEtc,
		func() error { return s.showTools(ctx, opt, found) },
		func() error { return s.trust(opt.Authority) },
		s.drawFromKernel,
		func() error { return s.showWarmGo(warmGo(filepath.Dir(place), opt, found)) },
		s.mask,
		s.dropDeadLinks,
	} {
		if err := step(); err != nil {
			return Root{}, err
		}
	}
	s.Env = append(s.Env, environment...)
	s.Dir = filepath.Join(place, "root")
	return s.Root, nil
}

// environment is the base environment except for PATH, which is the host's.
var environment = []string{
	"LANG=C.UTF-8",
	"HOME=" + Home, "USER=" + User, "LOGNAME=" + User, "SHELL=/bin/bash",
	// The output before a time limit must not stay in a buffer.
	"PYTHONUNBUFFERED=1",
	// The user is allowed to install packages: below its home, because /usr is read only.
	"PIP_BREAK_SYSTEM_PACKAGES=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_ROOT_USER_ACTION=ignore",
	"NPM_CONFIG_PREFIX=" + Home + "/.local", "NPM_CONFIG_UPDATE_NOTIFIER=false", "NPM_CONFIG_FUND=false",
	// Without it, Go would download the version that a module asks for.
	"GOTOOLCHAIN=local",
}

// makeFolders makes the image's own folders, and the files next to the skeleton that masks are made of.
func (s *skeleton) makeFolders() error {
	for _, dir := range []string{"/", "/proc", "/sys", "/dev", "/run", "/etc", "/root", "/var", "/home", "/.hutch"} {
		if err := s.mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	for _, dir := range Writable {
		mode := fs.FileMode(0o755)
		if strings.HasSuffix(dir, "tmp") {
			mode = 0o777 | fs.ModeSticky
		}
		if err := s.mkdir(dir, mode); err != nil {
			return err
		}
	}
	for _, dir := range []string{Workspace, Data, Home} {
		if err := s.giveToUser(dir); err != nil {
			return err
		}
	}
	if err := errors.Join(s.mkdir("/mnt", 0o755), os.Symlink(Workspace, filepath.Join(s.Dir, dataLink))); err != nil {
		return err
	}
	return errors.Join(s.write(AgentPath, ""), s.write("../"+emptyFile, ""), s.mkdir("../"+emptyFolder, 0o755))
}

const emptyFile, emptyFolder = "empty", "empty.d"

// giveToUser gives a folder to the user in the sandbox. Without root nothing has to be done: in the sandbox, the id of
// this process becomes the id of the user.
func (s *skeleton) giveToUser(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Chown(filepath.Join(s.Dir, dir), UID, GID)
}

// showSystem shows the programs and libraries of the host whose root is at base, with the same links into /usr as on
// the host.
func (s *skeleton) showSystem(base string) error {
	for _, name := range systemFolders {
		host, inside := filepath.Join(base, name), "/"+name
		info, err := os.Lstat(host)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		case info.IsDir():
			err = s.show(host, inside)
		case info.Mode()&fs.ModeSymlink != 0:
			err = s.link(host, inside)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// show binds the host's folder source at the target inside.
func (s *skeleton) show(source, target string) error {
	source, err := filepath.EvalSymlinks(source)
	if err != nil {
		return err
	}
	if s.onHost(target) != filepath.Join(s.Dir, target) {
		return errors.New("another folder is shown above it")
	}
	if err := s.mkdirAll(target); err != nil {
		return err
	}
	s.Binds = append(s.Binds, Bind{Source: source, Target: target})
	return nil
}

func (s *skeleton) writeEtc() error {
	for name, content := range own {
		if err := s.write("/etc/"+name, content); err != nil {
			return err
		}
	}
	return os.Symlink("../proc/self/mounts", filepath.Join(s.Dir, "etc/mtab"))
}

func (s *skeleton) copyEtc() error {
	return walkEtc(func(path string, entry fs.DirEntry) error {
		if err := s.mkdirAll(filepath.Dir(path)); err != nil {
			return err
		}
		switch entry.Type() {
		case fs.ModeDir:
			return s.mkdirAll(path)
		case fs.ModeSymlink:
			return s.link(path, path)
		case 0:
			return s.copyFile(path)
		}
		return nil // a socket or a device: no program reads its configuration from it
	})
}

// copyFile copies a file of the host to the same path, if everyone can read it there. A file that is gone or unreadable
// is left out.
func (s *skeleton) copyFile(path string) error {
	in, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o004 == 0 {
		return nil
	}
	out, err := os.OpenFile(filepath.Join(s.Dir, path), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return cmp.Or(err, out.Chmod(0o644|info.Mode()&0o111), out.Close())
}

// mask records a path that must not be visible, and mounts something empty over an existing file.
func (s *skeleton) mask() error {
	s.Masks = s.masked()
	for _, path := range s.bare() {
		empty := emptyFile
		if isDir(s.onHost(path)) {
			empty = emptyFolder
		}
		s.Binds = append(s.Binds, Bind{Source: filepath.Join(s.place, empty), Target: path})
	}
	return nil
}

// masked returns the paths inside at which the host has, or could have, a file that must be masked. It leaves out paths
// that lead into the skeleton, because the files there are not the host's.
func (r Root) masked() (paths []string) {
	for _, shown := range r.Binds {
		for _, name := range masks {
			at, missing := r.walk(filepath.Join(shown.Target, name))
			if path := at + missing; at != "" && r.onHost(at) != filepath.Join(r.Dir, at) && !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// bare returns the masked paths that contain no symbolic links and show something. An empty folder gets no mask,
// because each mask costs a mount.
func (r Root) bare() (paths []string) {
	for _, path := range r.masked() {
		host := r.onHost(path)
		if _, err := os.Lstat(host); err != nil {
			continue // most do not exist
		}
		if now, ok := r.follow(path); ok && now == path && !empty(host) {
			paths = append(paths, path)
		}
	}
	return paths
}

func empty(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return err == nil && info.Size() == 0
	}
	entries, err := os.ReadDir(path)
	return err == nil && len(entries) == 0
}

// dropDeadLinks removes the links of /etc whose targets are missing inside.
func (s *skeleton) dropDeadLinks() error {
	etc := filepath.Join(s.Dir, "etc")
	return filepath.WalkDir(etc, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type() != fs.ModeSymlink || entry.Name() == "mtab" {
			return err
		}
		if _, ok := s.Resolve(strings.TrimPrefix(path, s.Dir)); ok {
			return nil
		}
		return os.Remove(path)
	})
}

// link copies the link at path on the host to the path inside.
func (s *skeleton) link(path, inside string) error {
	target, err := os.Readlink(path)
	if err != nil {
		return err
	}
	err = os.Symlink(target, filepath.Join(s.Dir, inside))
	if errors.Is(err, fs.ErrExist) {
		return nil // patterns can overlap
	}
	return err
}

func (s *skeleton) write(path, content string) error {
	path = filepath.Join(s.Dir, path)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		return err
	}
	return os.Chmod(path, 0o644) // whatever the umask
}

// mkdirAll makes a folder and its parents, readable for everyone.
func (s *skeleton) mkdirAll(dir string) error {
	if _, err := os.Lstat(filepath.Join(s.Dir, dir)); err == nil {
		return nil
	}
	if err := s.mkdirAll(filepath.Dir(dir)); err != nil {
		return err
	}
	return s.mkdir(dir, 0o755)
}

func (s *skeleton) mkdir(dir string, mode fs.FileMode) error {
	path := filepath.Join(s.Dir, dir)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}
