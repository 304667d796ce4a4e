// Command dist makes what is given to people who do not build Hutch: for each architecture an archive with
// deploy/install.sh and a Debian package, and for all of them a list of what is in the programs (SBOM) and SHA256SUMS.
//
//	go run ./tools/dist -out DIR ARCH=FOLDER...
//
// FOLDER has the four programs for that architecture. All files of one commit are the same, byte for byte, on
// every machine and day: they carry the time SOURCE_DATE_EPOCH, or else that of the commit.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// programs belong together, and are looked for side by side.
var programs = []string{"hutch", "hutch-agent", "hutch-runsc", "hutch-gofer"}

func main() {
	log.SetFlags(0)
	log.SetPrefix("dist: ")
	out := flag.String("out", "dist", "folder for the results")
	hutch := flag.String("hutch", "bin/hutch", "a hutch for this machine, which prints man pages and completions")
	flag.Parse()
	if err := run(*out, *hutch, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(out, hutch string, targets []string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	r, err := newRelease(hutch)
	if err != nil {
		return err
	}
	pages, err := pages(hutch, r.time)
	if err != nil {
		return err
	}
	var made []string
	for _, target := range targets {
		arch, folder, ok := strings.Cut(target, "=")
		if !ok {
			return fmt.Errorf("%q is not ARCH=FOLDER", target)
		}
		list, err := r.make(out, arch, folder, pages)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		made = append(made, list...)
	}
	return sums(out, made)
}

// release is what all files of one version have in common.
type release struct {
	version string
	time    time.Time
}

func newRelease(hutch string) (release, error) {
	text, err := exec.Command(hutch, "version").Output() // hutch VERSION (commit COMMIT)
	words := strings.Fields(string(text))
	if err != nil || len(words) < 2 {
		return release{}, fmt.Errorf("ask %s for its version: %q, %v", hutch, text, err)
	}
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		head, err := exec.Command("git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return release{}, fmt.Errorf("there is no commit to take the time from: set SOURCE_DATE_EPOCH: %w", err)
		}
		epoch = strings.TrimSpace(string(head))
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	return release{words[1], time.Unix(seconds, 0).UTC()}, err
}

// make makes the files for one architecture, and returns their names.
func (r release) make(out, arch, folder string, pages tree) ([]string, error) {
	bill, err := r.listModules(arch, folder)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("hutch-%s-linux-%s", r.version, arch)
	files, err := shipped(folder, pages)
	if err != nil {
		return nil, err
	}
	files["share/doc/hutch/sbom.spdx.json"] = file{bill, 0o644}
	if err := os.WriteFile(filepath.Join(out, name+".spdx.json"), bill, 0o644); err != nil {
		return nil, err
	}
	if err := r.archive(filepath.Join(out, name+".tar.gz"), name, files); err != nil {
		return nil, err
	}
	made := []string{name + ".spdx.json", name + ".tar.gz"}
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		log.Print("dpkg-deb is missing: there is no Debian package (apt-get install dpkg)")
		return made, nil
	}
	deb, err := r.debian(out, arch, files)
	return append(made, deb), err
}

// sums writes SHA256SUMS, which sha256sum -c reads.
func sums(out string, names []string) error {
	var b strings.Builder
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(content), name)
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(b.String()), 0o644)
}
