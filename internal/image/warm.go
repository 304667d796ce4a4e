package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A first Go program would compile the standard library in each sandbox, which takes longer than the time limit. So it
// is compiled once for each toolchain, on the host: the compiler is the host's, and so are all files that it reads. The
// image shows the result read only, through a program for GOCACHEPROG.
const (
	goFolder  = "/etc/hutch/go"
	goProgram = "cache"
	goBuild   = "build"
	warmTime  = 30 * time.Minute // limits the work on a busy machine
	warmNice  = 19
)

//go:embed gocache/main.go
var goCacheSource []byte

// Warm compiles what the programs of the host image would otherwise compile in each sandbox, for images that [Host]
// makes in dir from then on. It takes a minute of one processor and 200 MB, once for each Go toolchain. It reports
// whether it had to compile; if everything is compiled already, it returns at once. Unfinished results of a killed
// process are removed like unfinished images.
func Warm(ctx context.Context, dir string, opt HostOptions) (made bool, err error) {
	return warm(ctx, dir, opt, "std")
}

func warm(ctx context.Context, dir string, opt HostOptions, packages ...string) (made bool, err error) {
	found := lookTools(opt.Path)
	path := warmGo(dir, opt, found)
	if path == "" || exists(path) {
		return false, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, err
	}
	tmp, err := os.MkdirTemp(dir, newPrefix)
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(tmp)
	ctx, cancel := context.WithTimeout(ctx, warmTime)
	defer cancel()
	w, err := newWarmer(ctx, tmp, opt, found)
	if err != nil {
		return false, err
	}
	if ok, err := w.speaks(ctx); err != nil || !ok {
		return false, err
	}
	if err := w.compile(ctx, packages); err != nil {
		return false, err
	}
	if err := syncAll(tmp); err != nil {
		return false, err
	}
	err = os.Rename(filepath.Join(tmp, "go"), path)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		return false, nil // another process was quicker
	}
	if err != nil {
		return false, err
	}
	removeOther(path)
	return true, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// warmGo returns the path of the cache for the Go toolchain among the tools. It is named after everything that
// determines which packages are compiled and how.
func warmGo(dir string, opt HostOptions, found []foundTool) string {
	if !slices.ContainsFunc(found, isGo) {
		return ""
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s %s\n", runtime.GOARCH, goCacheSource)
	for _, t := range found {
		if slices.Contains([]string{"go", "gcc", "cc"}, t.name) {
			stamp(h, t.path)
			stamp(h, t.real)
		}
	}
	for _, file := range choices {
		stamp(h, filepath.Join(opt.Home, file))
	}
	return filepath.Join(dir, "go-"+hex.EncodeToString(h.Sum(nil))[:16])
}

func isGo(t foundTool) bool { return t.name == "go" }

// removeOther removes the caches of other toolchains. Images that contain such a cache keep it, because they have
// separate hard links to its files.
func removeOther(path string) {
	others, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "go-*"))
	for _, other := range others {
		if other != path {
			os.RemoveAll(other)
		}
	}
}

// warmer compiles in a temporary folder, whose result appears completely or not at all.
type warmer struct {
	dir  string
	path string // the search path
	root string // root of Go
}

// newWarmer asks the go command for the toolchain that it uses.
func newWarmer(ctx context.Context, dir string, opt HostOptions, found []foundTool) (warmer, error) {
	prefixes := found[slices.IndexFunc(found, isGo)].prefixes(ctx, opt)
	if len(prefixes) == 0 {
		return warmer{}, errors.New("the go command does not say where it lives")
	}
	return warmer{dir, opt.Path, prefixes[0]}, nil
}

var goVersion = regexp.MustCompile(`\bgo1\.(\d+)`)

// speaks reports whether the go command knows GOCACHEPROG.
func (w warmer) speaks(ctx context.Context) (bool, error) {
	out, err := w.run(ctx, "version")
	m := goVersion.FindStringSubmatch(out)
	if err != nil || m == nil {
		return false, err
	}
	minor, err := strconv.Atoi(m[1])
	return err == nil && minor >= 24, nil
}

func (w warmer) compile(ctx context.Context, packages []string) error {
	made := filepath.Join(w.dir, "go")
	source := filepath.Join(w.dir, "main.go")
	if err := errors.Join(os.Mkdir(made, 0o755), os.WriteFile(source, goCacheSource, 0o644)); err != nil {
		return err
	}
	if _, err := w.run(ctx, append([]string{"build", "-p=1"}, packages...)...); err != nil {
		return err
	}
	if _, err := w.run(ctx, "build", "-ldflags=-s -w", "-o", filepath.Join(made, goProgram), source); err != nil {
		return err
	}
	return open(made)
}

// run runs the go command, at the lowest priority and with nothing of our
// environment, as it will run inside.
func (w warmer) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(w.root, "bin", "go"), args...)
	cmd.Dir = "/"
	cmd.Env = []string{
		"PATH=" + w.path, "HOME=" + w.dir, "LANG=C.UTF-8", "TMPDIR=" + w.dir, "GOTOOLCHAIN=local", "GOENV=off", "GOPROXY=off",
		"GOTELEMETRY=off", "GOMAXPROCS=1", "GOCACHE=" + filepath.Join(w.dir, "go", goBuild),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		return "", err
	}
	unix.Setpriority(unix.PRIO_PGRP, cmd.Process.Pid, warmNice)
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, firstLine(stderr.String()))
	}
	return stdout.String(), nil
}

// open lets everyone read the files below dir, whatever the umask.
func open(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() || filepath.Base(path) == goProgram:
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o444)
	})
}

// showWarmGo puts links to the files of the warm cache into the skeleton, if it exists, and configures the go command
// to use it.
func (s *skeleton) showWarmGo(warm string) error {
	if warm == "" || !exists(warm) {
		return nil
	}
	err := filepath.WalkDir(warm, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside := goFolder + strings.TrimPrefix(path, warm)
		if entry.IsDir() {
			return s.mkdirAll(inside)
		}
		return os.Link(path, filepath.Join(s.Dir, inside))
	})
	if err == nil {
		s.Env = append(s.Env, "GOCACHEPROG="+goFolder+"/"+goProgram)
	}
	return err
}
