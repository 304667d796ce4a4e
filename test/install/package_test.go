package install_test

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"hutch/internal/hutchtest"
)

// dist makes the files of a release for this machine, from the programs in bin, and returns their folder.
func dist(t *testing.T) string {
	t.Helper()
	hutch := hutchtest.Program(t, "hutch")
	for _, name := range []string{"hutch-agent", "hutch-runsc", "hutch-gofer"} {
		hutchtest.Program(t, name)
	}
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		hutchtest.Skip(t, "dpkg-deb is missing: apt-get install dpkg")
	}
	out := t.TempDir()
	run(t, root, "env", "SOURCE_DATE_EPOCH=1700000000", "go", "run", "./tools/dist", "-out", out, "-hutch", hutch, runtime.GOARCH+"="+filepath.Dir(hutch))
	return out
}

// only returns the one file that a pattern matches.
func only(t *testing.T, pattern string) string {
	t.Helper()
	list, err := filepath.Glob(pattern)
	if err != nil || len(list) != 1 {
		t.Fatalf("%s matches %q, %v", pattern, list, err)
	}
	return list[0]
}

// files lists everything in a folder except folders.
func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			list = append(list, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Everything of a release, made once: the sums, the list of modules, the Debian package and the archive.
func TestRelease(t *testing.T) {
	t.Parallel()
	out := dist(t)
	run(t, out, "sha256sum", "-c", "SHA256SUMS")
	t.Run("bill", func(t *testing.T) { checkBill(t, only(t, filepath.Join(out, "*.spdx.json"))) })
	t.Run("debian", func(t *testing.T) { checkDebian(t, only(t, filepath.Join(out, "*.deb"))) })
	t.Run("archive", func(t *testing.T) { checkArchive(t, only(t, filepath.Join(out, "*.tar.gz"))) })
	t.Run("programs", func(t *testing.T) { checkPrograms(t, out, runtime.GOARCH) })
}

// The files of a release for arm64, as make dist makes them on this machine. An emulator runs its program, if there is one.
func TestReleaseForAnotherProcessor(t *testing.T) {
	if !hutchtest.Full() || runtime.GOARCH != "amd64" {
		t.Skip("make test-full has it on amd64: it compiles all programs again")
	}
	t.Parallel()
	out := t.TempDir()
	run(t, root, "make", "dist", "ARCHS=arm64", "DIST="+out)
	run(t, out, "sha256sum", "-c", "SHA256SUMS")
	checkBill(t, only(t, filepath.Join(out, "*.spdx.json")))
	programs := checkPrograms(t, out, "arm64")
	if deb := run(t, out, "dpkg-deb", "--field", only(t, filepath.Join(out, "*.deb")), "Architecture"); deb != "arm64\n" {
		t.Errorf("the Debian package is for %q", deb)
	}
	emulator, err := exec.LookPath("qemu-aarch64-static")
	if err != nil {
		t.Skip("no program was run: apt-get install qemu-user-static")
	}
	if text := run(t, out, emulator, filepath.Join(programs, "hutch"), "version"); !strings.HasPrefix(text, "hutch ") {
		t.Errorf("hutch version: %s", text)
	}
}

// checkPrograms: the programs in the archive are static, for the right processor, and the same as in the list of
// modules. It returns their folder.
func checkPrograms(t *testing.T, out, arch string) string {
	t.Helper()
	dir := t.TempDir()
	run(t, dir, "tar", "-xzf", only(t, filepath.Join(out, "*-linux-"+arch+".tar.gz")), "--strip-components=1")
	bill, err := os.ReadFile(only(t, filepath.Join(out, "*-linux-"+arch+".spdx.json")))
	if err != nil {
		t.Fatal(err)
	}
	if inside, err := os.ReadFile(filepath.Join(dir, "share/doc/hutch/sbom.spdx.json")); err != nil || !bytes.Equal(inside, bill) {
		t.Errorf("the archive has another list of modules: %v", err)
	}
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	for _, name := range []string{"hutch", "hutch-agent", "hutch-runsc", "hutch-gofer"} {
		content, err := os.ReadFile(filepath.Join(dir, "bin", name))
		if err != nil {
			t.Fatal(err)
		}
		program, err := elf.NewFile(bytes.NewReader(content))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		needs, err := program.ImportedLibraries()
		loaded := slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
		if err != nil && !errors.Is(err, elf.ErrNoSymbols) || program.Machine != machine || loaded || len(needs) > 0 {
			t.Errorf("%s is for %v, with a loader: %v, needs %q, %v", name, program.Machine, loaded, needs, err)
		}
		if !strings.Contains(string(bill), fmt.Sprintf("%x", sha256.Sum256(content))) {
			t.Errorf("the list of modules is of another %s", name)
		}
	}
	return filepath.Join(dir, "bin")
}

// checkBill: the list names the modules that each program is made of, each module once.
func checkBill(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		SPDXVersion string
		Packages    []struct{ Name, SPDXID, VersionInfo string }
		Relations   []struct{ SPDXElementID, RelatedSPDXElement, RelationshipType string } `json:"relationships"`
	}
	if err := json.Unmarshal(text, &doc); err != nil || doc.SPDXVersion != "SPDX-2.3" {
		t.Fatalf("%v, version %q", err, doc.SPDXVersion)
	}
	ids, names := map[string]bool{"SPDXRef-DOCUMENT": true}, []string{}
	for _, p := range doc.Packages {
		if ids[p.SPDXID] || p.VersionInfo == "" {
			t.Errorf("%+v is there twice, or has no version", p)
		}
		ids[p.SPDXID] = true
		names = append(names, p.Name)
	}
	for _, want := range []string{"hutch", "hutch-runsc", "stdlib", "gvisor.dev/gvisor", "github.com/spf13/cobra"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not listed: %q", want, names)
		}
	}
	for _, r := range doc.Relations {
		if !ids[r.SPDXElementID] || !ids[r.RelatedSPDXElement] {
			t.Errorf("%+v names what is not listed", r)
		}
	}
}

// checkDebian installs the package into a folder as dpkg does, runs a program from there, and removes it.
func checkDebian(t *testing.T, deb string) {
	if os.Geteuid() != 0 {
		hutchtest.Skip(t, "dpkg installs as root only")
	}
	dir := t.TempDir()
	admin := filepath.Join(dir, "var/lib/dpkg")
	for _, folder := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(filepath.Join(admin, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(admin, "status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dpkg := func(args ...string) string {
		// Container images configure dpkg to leave out man pages and documents.
		return run(t, dir, "dpkg", append([]string{"--root=" + dir, "--log=/dev/null", "--force-script-chrootless", "--path-include=/usr/*"}, args...)...)
	}
	installed := func() (list []string) {
		for _, name := range files(t, dir) {
			if !strings.HasPrefix(name, "var/lib/dpkg/") {
				list = append(list, name)
			}
		}
		return list
	}
	for range 2 { // the second time is an upgrade
		dpkg("--install", deb)
	}
	have := installed()
	for _, want := range []string{
		"etc/hutch/hutch.yaml", "usr/bin/hutch", "usr/bin/hutch-agent", "usr/bin/hutch-gofer", "usr/bin/hutch-runsc", "usr/lib/systemd/system/hutch.service",
		"usr/share/bash-completion/completions/hutch", "usr/share/doc/hutch/copyright", "usr/share/doc/hutch/sbom.spdx.json", "usr/share/fish/vendor_completions.d/hutch.fish",
		"usr/share/man/man1/hutch.1.gz", "usr/share/man/man1/hutch-serve.1.gz", "usr/share/man/man1/hutch-config-check.1.gz", "usr/share/zsh/vendor-completions/_hutch",
	} {
		if !slices.Contains(have, want) {
			t.Errorf("%s is missing: there are %q", want, have)
		}
	}
	hutch, config := filepath.Join(dir, "usr/bin/hutch"), filepath.Join(dir, "etc/hutch/hutch.yaml")
	if out := run(t, dir, hutch, "version"); !strings.HasPrefix(out, "hutch ") {
		t.Errorf("hutch version: %s", out)
	}
	run(t, dir, hutch, "config", "check", config)

	// A removal keeps the settings and the data; only a purge deletes them.
	data := filepath.Join(dir, "var/lib/hutch/token")
	if err := os.MkdirAll(filepath.Dir(data), 0o711); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{data, config} {
		if err := os.WriteFile(path, []byte("pool: 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dpkg("--remove", "hutch")
	if left := installed(); !slices.Equal(left, []string{"etc/hutch/hutch.yaml", "var/lib/hutch/token"}) {
		t.Errorf("after the removal there are %q", left)
	}
	dpkg("--purge", "hutch")
	if left := installed(); len(left) > 0 {
		t.Errorf("after the purge there are %q", left)
	}
}

// checkArchive installs from the archive, twice, and uninstalls without and with the data.
func checkArchive(t *testing.T, archive string) {
	dir, dest := t.TempDir(), t.TempDir()
	run(t, dir, "tar", "-xzf", archive, "--strip-components=1")
	script := func(args ...string) string {
		return run(t, dir, "env", append([]string{"DESTDIR=" + dest, "HUTCH_DATA=/var/lib/hutch", "./install.sh"}, args...)...)
	}
	ours := filepath.Join(dest, "opt/hutch/bin/another")
	for _, path := range []string{ours, filepath.Join(dest, "var/lib/hutch/token")} { // the files from before
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time is an upgrade
		script("--prefix", "/opt/hutch")
	}
	if out := run(t, dest, filepath.Join(dest, "opt/hutch/bin/hutch"), "version"); !strings.HasPrefix(out, "hutch ") {
		t.Errorf("hutch version: %s", out)
	}
	unit, err := os.ReadFile(filepath.Join(dest, "etc/systemd/system/hutch.service"))
	if err != nil || !strings.Contains(string(unit), "ExecStart=/opt/hutch/bin/hutch serve --config /etc/hutch/hutch.yaml\n") {
		t.Errorf("the unit: %v\n%s", err, unit)
	}
	script("uninstall", "--prefix", "/opt/hutch")
	if left := files(t, dest); !slices.Equal(left, []string{"opt/hutch/bin/another", "var/lib/hutch/token"}) {
		t.Errorf("after the removal there are %q", left)
	}
	script("--prefix", "/opt/hutch")
	script("uninstall", "--purge", "--prefix", "/opt/hutch")
	if left := files(t, dest); !slices.Equal(left, []string{"opt/hutch/bin/another"}) {
		t.Errorf("after the purge there are %q", left)
	}
	if _, err := os.Stat(filepath.Join(dest, "opt/hutch/share")); err == nil {
		t.Error("empty folders are left")
	}
}

// TestUnit: systemd finds nothing wrong with the unit, and the unit forbids nothing that sandboxes are made of.
func TestUnit(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/deploy/hutch.service")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, "=")
		// Each of these settings forbids namespaces, mounts, setuid programs or compiled code, or gives each start its
		// own view of mounts.
		for _, bad := range []string{"Protect", "Private", "RestrictNamespaces", "RestrictSUIDSGID", "MemoryDenyWriteExecute", "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths", "TemporaryFileSystem", "RootDirectory", "MountFlags", "User"} {
			if strings.HasPrefix(name, bad) && !strings.HasPrefix(line, "#") {
				t.Errorf("sandboxes do not work with %s", line)
			}
		}
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		hutchtest.Skip(t, "systemd-analyze is missing: %v", err)
	}
	unit := filepath.Join(t.TempDir(), "hutch.service")
	own := strings.ReplaceAll(string(text), "/usr/bin/hutch", hutchtest.Program(t, "hutch"))
	if err := os.WriteFile(unit, []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := run(t, root, "systemd-analyze", "verify", "--man=no", unit); out != "" {
		t.Error(out)
	}
}
