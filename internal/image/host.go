package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/subid"
)

// HostOptions configure the host image.
type HostOptions struct {
	// Path is the search path for programs, as in $PATH: sandboxes have the python3 that is found there.
	Path string
	// Home is where version managers (pyenv, rustup) store their choice.
	Home string
	// Authority is a certificate, as PEM, that programs inside trust in addition to the host's own. May be empty.
	Authority []byte
	// Log gets the names of files that are left out, and why; nil for no log.
	Log *slog.Logger
}

// hostVersion changes when the same host must give a different image.
const hostVersion = "6"

// Host returns the host image: the programs of this machine, without its secrets and state. The skeleton is kept under
// dir, in a folder named after everything that it depends on. So the next call finds it ready. If the host changes,
// there is a new folder next to the old one, which sandboxes can still use. Any number of processes can call Host for
// one dir at once.
func Host(ctx context.Context, dir string, opt HostOptions) (Root, error) {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Root{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Root{}, err
	}
	found := lookTools(opt.Path)
	key := fingerprint(opt, found, warmGo(dir, opt, found))
	for n := 0; ; n++ { // an outdated tree stays for the sandboxes that use it, and a new one is made
		place := filepath.Join(dir, fmt.Sprintf("host-%s-%d", key, n))
		root, err := loadRoot(place)
		if errors.Is(err, fs.ErrNotExist) {
			err = makeHost(ctx, place, opt, found)
			if err != nil {
				return Root{}, fmt.Errorf("make the host image: %w", err)
			}
			root, err = loadRoot(place)
		}
		if err != nil || root.whole() {
			return root, err
		}
		opt.Log.Warn("what the host image shows is gone or is to be masked; making the image again", "image", place)
	}
}

const rootFile = "root.json"

func loadRoot(place string) (root Root, err error) {
	b, err := os.ReadFile(filepath.Join(place, rootFile))
	if err != nil {
		return Root{}, err
	}
	if err := json.Unmarshal(b, &root); err != nil {
		return Root{}, fmt.Errorf("read %s: %w; remove %s to have it made again", rootFile, err, place)
	}
	return root, nil
}

// whole reports whether everything that the image shows still exists, and the host has no new file that the image must
// mask.
func (r Root) whole() bool {
	if _, err := os.Stat(r.Dir); err != nil {
		return false
	}
	for _, b := range r.Binds {
		if _, err := os.Stat(b.Source); err != nil {
			return false
		}
	}
	return len(r.bare()) == 0
}

// makeHost makes the image in a temporary folder and renames it to place when it is complete. If another process has
// done so first, its result is used.
func makeHost(ctx context.Context, place string, opt HostOptions, found []foundTool) error {
	sweepAbandoned(filepath.Dir(place))
	tmp, err := os.MkdirTemp(filepath.Dir(place), newPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // after the rename it does not exist
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	root, err := buildHost(ctx, tmp, place, opt, found)
	if err != nil {
		return err
	}
	b, err := json.Marshal(root)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, rootFile), b, 0o644); err != nil {
		return err
	}
	if err := syncAll(tmp); err != nil {
		return err
	}
	err = os.Rename(tmp, place)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	return err
}

// syncAll writes everything below dir to disk. So an image that has its name after a power failure is complete.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

const newPrefix = ".new-"

// sweepAbandoned removes unfinished images of killed processes.
func sweepAbandoned(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), newPrefix) && time.Since(info.ModTime()) > time.Hour {
			_ = subid.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// fingerprint names an image by everything that determines its content.
func fingerprint(opt HostOptions, found []foundTool, warm string) string {
	h := sha256.New()
	fmt.Fprintln(h, hostVersion, runtime.GOARCH, os.Geteuid(), opt.Path, opt.Home, opt.Authority)
	for _, name := range systemFolders {
		stamp(h, "/"+name)
	}
	for _, dir := range filepath.SplitList(opt.Path) {
		_, err := os.Stat(dir)
		fmt.Fprintln(h, dir, err == nil)
	}
	for _, t := range found {
		stamp(h, t.path)
		stamp(h, t.real)
	}
	for _, file := range choices {
		stamp(h, filepath.Join(opt.Home, file))
	}
	walkEtc(func(path string, _ fs.DirEntry) error { stamp(h, path); return nil })
	fmt.Fprintln(h, warm, exists(warm))
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// stamp writes the values that change when the file at path changes: the kernel updates a file's change time at every
// write, rename and chmod.
func stamp(h hash.Hash, path string) {
	info, err := os.Lstat(path)
	if err != nil {
		fmt.Fprintln(h, path, "-")
		return
	}
	st := info.Sys().(*syscall.Stat_t)
	fmt.Fprintln(h, path, st.Mode, st.Size, st.Ino, st.Ctim.Sec, st.Ctim.Nsec)
}
