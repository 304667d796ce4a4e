package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// tool is a program that can be installed outside of /usr, and how to find its prefix: the folder that holds the
// program and all that it needs.
type tool struct {
	name string
	// ask are arguments that make it print prefixes, one a line. Without
	// them the prefix is the parent of the program's own folder.
	ask []string
	// answer finds the prefix in the tool's output, if that has more.
	answer *regexp.Regexp
}

const askPython = "import sys; print(sys.prefix); print(sys.base_prefix); print(sys.exec_prefix)"

// tools are looked up on the host's search path. To support another tool, add a line.
var tools = []tool{
	{name: "python3", ask: []string{"-c", askPython}},
	{name: "python", ask: []string{"-c", "import sys; print(sys.prefix)"}},
	{name: "node", ask: []string{"-p", "path.dirname(path.dirname(process.execPath))"}},
	{name: "go", ask: []string{"env", "GOROOT"}},
	{name: "rustc", ask: []string{"--print", "sysroot"}},
	{name: "java", ask: []string{"-XshowSettings:properties", "-version"}, answer: regexp.MustCompile(`(?m)^\s*java\.home = (.*)$`)},
	{name: "ruby", ask: []string{"-e", `puts RbConfig::CONFIG["prefix"]`}},
	{name: "perl", ask: []string{"-MConfig", "-e", `print $Config{prefixexp}`}},
	{name: "php", ask: []string{"-r", "echo dirname(PHP_BINDIR);"}},
	{name: "R", ask: []string{"RHOME"}},
	{name: "cc"}, {name: "gcc"}, {name: "g++"}, {name: "c++"}, {name: "clang"},
	{name: "git"}, {name: "bash"}, {name: "deno"}, {name: "bun"},
}

// proxies are programs with many links to them. Such a program is called through a link, and runs another program that
// has the name of the link.
var proxies = []string{"rustup", "mise", "asdf", "rtx", "volta-shim", "shim", "fnm", "busybox"}

// choices are the files, relative to the home folder, where version managers
// keep which version is in use.
var choices = []string{
	".pyenv/version", ".rbenv/version", ".nodenv/version", ".goenv/version", ".rustup/settings.toml",
	".tool-versions", ".config/mise/config.toml", ".volta/tools/user/platform.json", ".nvm/alias/default",
}

// stores are folders whose packages refer to each other: none of them works without the rest.
var stores = []string{"/nix/store", "/gnu/store", "/home/linuxbrew/.linuxbrew"}

// foundTool is a tool that is on the host's search path.
type foundTool struct {
	tool
	dir  string // the folder of the search path
	path string // its path in that folder
	real string // its path without links
}

func lookTools(path string) (found []foundTool) {
	for _, t := range tools {
		for _, dir := range filepath.SplitList(path) {
			file := filepath.Join(dir, t.name)
			if !filepath.IsAbs(dir) || !executable(file) {
				continue
			}
			if real, err := filepath.EvalSymlinks(file); err == nil {
				found = append(found, foundTool{t, dir, file, real})
				break
			}
		}
	}
	return found
}

// showTools shows the prefixes of the tools that the system's folders do not have, and sets PATH to find everything in
// the host's order.
func (s *skeleton) showTools(ctx context.Context, opt HostOptions, found []foundTool) error {
	prefixes := make([][]string, len(found))
	var wg sync.WaitGroup
	for i, t := range found {
		if !s.has(t) {
			wg.Go(func() { prefixes[i] = t.prefixes(ctx, opt) })
		}
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	bins := map[string][]string{} // by folder of the search path, its replacement
	for i, t := range found {
		for _, prefix := range prefixes[i] {
			if err := s.showPrefix(prefix, opt); err != nil {
				opt.Log.Warn("a program is left out of the host image", "program", t.path, "prefix", prefix, "err", err)
				continue
			}
			bins[t.dir] = append(bins[t.dir], filepath.Join(prefix, "bin"))
		}
	}
	s.Env = append(s.Env, "PATH="+s.searchPath(opt.Path, bins))
	return nil
}

// has reports whether the image shows the tool already. A script or a proxy does not count, because it only starts the
// tool's program.
func (s *skeleton) has(t foundTool) bool {
	inside, ok := s.Resolve(t.real)
	return ok && inside == t.real && !slices.Contains(proxies, filepath.Base(t.real)) && !isScript(t.real)
}

func isScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [2]byte
	n, _ := f.Read(magic[:])
	return string(magic[:n]) == "#!"
}

// searchPath returns the host's search path, without folders that the image does not show, and with the programs that
// shims lead to, instead of the shims.
func (s *skeleton) searchPath(host string, bins map[string][]string) string {
	dirs := []string{Home + "/.local/bin"}
	add := func(dir string) {
		if real, ok := s.Resolve(dir); ok && isDir(real) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range filepath.SplitList(host) {
		for _, bin := range bins[dir] {
			add(bin)
		}
		if filepath.IsAbs(dir) {
			add(filepath.Clean(dir))
		}
	}
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
		add(dir)
	}
	return strings.Join(dirs, ":")
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// askTime is how long a tool can take to print its prefix. A Java on a busy machine needs a second.
const askTime = 10 * time.Second

// prefixes asks the tool for its prefix. It runs in /, so that no folder's own choice of a version counts, with nothing
// of our environment.
func (t foundTool) prefixes(ctx context.Context, opt HostOptions) []string {
	if t.ask == nil {
		return []string{filepath.Dir(filepath.Dir(t.real))}
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.path, t.ask...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + opt.Path, "HOME=" + opt.Home, "LANG=C.UTF-8", "GOTOOLCHAIN=local", "RUSTUP_AUTO_INSTALL=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		opt.Log.Warn("a program does not say where it lives; it is left out of the host image",
			"program", t.path, "err", err, slog.String("stderr", firstLine(stderr.String())))
		return nil
	}
	out := stdout.String()
	if t.answer != nil {
		m := t.answer.FindStringSubmatch(out + stderr.String())
		if m == nil {
			return nil
		}
		out = m[1]
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(lines[1:])
	return slices.Compact(lines)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// showPrefix shows a tool's prefix at the same path as on the host, because many tools contain that path.
func (s *skeleton) showPrefix(prefix string, opt HostOptions) error {
	real, err := filepath.EvalSymlinks(prefix)
	if err != nil {
		return err
	}
	for _, store := range stores {
		if _, ok := below(store, real); ok {
			prefix, real = store, store
		}
	}
	for _, dir := range []string{real, filepath.Clean(prefix)} { // the second can be a visible link
		if inside, ok := s.Resolve(dir); ok && inside == real {
			continue
		}
		if err := checkPrefix(dir, opt.Home); err != nil {
			return err
		}
		if err := s.show(real, dir); err != nil {
			return err
		}
	}
	return nil
}

// checkPrefix refuses to show a folder that holds more than a tool.
func checkPrefix(dir, home string) error {
	if strings.Count(dir, "/") < 2 || filepath.Dir(dir) == "/home" || filepath.Base(dir) == ".local" {
		return errors.New("the folder may hold much else")
	}
	if _, ok := below(dir, home); ok && home != "" {
		return errors.New("the home folder is in it")
	}
	for _, taken := range append([]string{"/proc", "/sys", "/dev", "/run", "/etc"}, Writable...) {
		if _, ok := below(taken, dir); ok {
			return fmt.Errorf("the image has a %s of its own", taken)
		}
	}
	for _, name := range []string{".ssh", ".bashrc", ".profile", ".gnupg", ".aws", ".config"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("it has a %s, as home folders do", name)
		}
	}
	info, err := os.Stat(dir)
	if err == nil && os.Geteuid() == 0 && info.Mode()&0o005 != 0o005 {
		return errors.New("only its owner may look into it")
	}
	return err
}
