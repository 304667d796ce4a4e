package builds

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/server"
)

// madeBases replace the images that the Dockerfiles of this repository start from, because only a registry has those.
// The replacements contain the same programs, from Debian's packages and npm's package of Node.
var madeBases = []struct{ names, dockerfile string }{
	{"python:3.11-slim", `RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-pip && rm /usr/lib/python3*/EXTERNALLY-MANAGED && ln -s python3 /usr/bin/python`},
	{"ruby:3.3-slim", `RUN apt-get update && apt-get install -y --no-install-recommends ruby`},
	{"node:22-slim node:22-bookworm-slim", `COPY node /usr/local/bin/node
COPY npm /usr/local/lib/node_modules/npm
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm && groupadd --gid 1000 node && useradd --uid 1000 --gid node --create-home node`},
}

// plainDebian is the Dockerfile of the image that madeBases start from. It adds settings to an image without any.
const plainDebian = "FROM localhost/bootstrapped\nENV PATH=" + debianPath + " REQUESTS_CA_BUNDLE=/" + trustedFile + " PIP_CERT=/" + trustedFile + " NODE_EXTRA_CA_CERTS=/" + trustedFile + "\n"

// TestDockerfiles builds the Dockerfiles of templates and of examples/runners, and uses the images.
func TestDockerfiles(t *testing.T) {
	if os.Getenv("HUTCH_TEST_DOCKERFILES") == "" {
		t.Skip("make test-dockerfiles has it: it needs the internet")
	}
	b := newBed(t, "native") // native is much faster with apt-get
	b.load(t, "localhost/bootstrapped", func() ([]byte, error) { return archiveOf(trusting(bootstrapped(t))) })
	b.buildOnline(t, "debian:bookworm-slim", plainDebian, nil)
	node := nodeFiles(t)
	for _, base := range madeBases {
		for _, name := range strings.Fields(base.names) {
			b.buildOnline(t, name, "FROM debian:bookworm-slim\n"+base.dockerfile, node)
		}
	}
	for name, check := range map[string]struct{ command, want string }{
		"base":        {"git --version >/dev/null && curl --version >/dev/null && python3 -c 'import venv' && node -e 0 && sudo -n id -u && id -un", "0\nuser"},
		"python":      {"python3 -c 'import matplotlib.pyplot as p, numpy, pandas; p.plot([1, 2]); p.savefig(\"f.png\"); print(pandas.Series(numpy.arange(4)).sum())' && ls", "6\nf.png"},
		"node":        {"node -p 6*7 && npm --version >/dev/null && git --version >/dev/null && id -un", "42\nnode"},
		"claude-code": {"claude --version | grep -o 'Claude Code' && jq -n 1+1", "Claude Code\n2"},
		"desktop":     {"chromium --version | cut -d' ' -f1 && command -v openbox Xtigervnc xclip xterm | wc -l", "Chromium\n4"},
	} {
		t.Run("templates/"+name, func(t *testing.T) {
			b.buildOnline(t, "localhost/"+name, readDockerfile(t, "templates/"+name), nil)
			b.inImage(t, "localhost/"+name, check.command, check.want)
		})
	}
	for name, check := range map[string]struct{ code, want string }{
		"python":     {"import numpy, pandas\nprint(pandas.Series(numpy.arange(4)).sum())", "6"},
		"typescript": {"const n: number = 6; enum Two { Seven = 7 }; console.log(n * Two.Seven)", "42"},
		"ruby":       {"puts [1, 2, 3].sum", "6"},
	} {
		t.Run("examples/runners/"+name, func(t *testing.T) {
			img := b.buildOnline(t, "localhost/runner-"+name, readDockerfile(t, "examples/runners/"+name), nil)
			b.asRunner(t, img, name, check.code, check.want)
		})
	}
}

func readDockerfile(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", dir, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// buildOnline builds an image whose commands reach the registries of packages.
func (b *bed) buildOnline(t *testing.T, name, dockerfile string, list []entry) hutch.Image {
	t.Helper()
	began := time.Now()
	var log []string
	img, err := b.BuildImage(t.Context(), hutch.BuildRequest{
		Name: name, Dockerfile: dockerfile, Limits: hutch.Limits{CPU: 2, Memory: 4096, Disk: 4096},
		Network: hutch.Network{Mode: hutch.NetworkAllowList, Allow: hutch.Rules("deb.debian.org", "pypi.org", "files.pythonhosted.org", "registry.npmjs.org")},
	}, pack(t, list), func(e hutch.BuildEvent) error {
		if e.State == hutch.BuildLog {
			log = append(log, e.Text)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, strings.Join(log[max(0, len(log)-30):], "\n"))
	}
	t.Logf("%s was built in %.1f s", name, time.Since(began).Seconds())
	return img
}

// inImage runs a command in a sandbox of an image.
func (b *bed) inImage(t *testing.T, image, command, want string) {
	t.Helper()
	sb, err := b.Create(t.Context(), hutch.CreateRequest{Image: image, Limits: hutch.Limits{Memory: 1024}})
	if err != nil {
		t.Fatal(err)
	}
	res, err := b.Exec(t.Context(), sb.ID, hutch.ExecRequest{Command: command, Timeout: 120}, nil)
	if got := strings.TrimSpace(string(res.Stdout)); err != nil || got != want {
		t.Errorf("it prints %q, not %q, %v\n%s", got, want, err, res.Stderr)
	}
	if _, err := b.Destroy(t.Context(), sb.ID, true); err != nil {
		t.Error(err)
	}
}

// asRunner runs code in a conversation, with the image as the runner of the language, and removes the image.
func (b *bed) asRunner(t *testing.T, img hutch.Image, language, code, want string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": "sandbox.run_code", "arguments": map[string]any{"conversationId": "chat-" + language, "language": language, "code": code},
	}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", b.URL+"/mcp", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + server.Token}, "Content-Type": {"application/json"}}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Result struct {
			StructuredContent struct {
				Stdout, Stderr string
				ExitCode       int
			}
		}
	}
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if res := answer.Result.StructuredContent; err != nil || strings.TrimSpace(res.Stdout) != want || res.ExitCode != 0 {
		t.Errorf("it answers %s, %v", text, err)
	}
	b.Empty(t)
	if err := b.DeleteImage(t.Context(), img.ID); err != nil {
		t.Error(err)
	}
}

// trustedFile has the certificates that this machine trusts, because a proxy may stand between it and the registries.
const trustedFile = "etc/trusted-here.pem"

// trusting adds trustedFile to an image.
func trusting(write func(*tar.Writer) error) func(*tar.Writer) error {
	return func(w *tar.Writer) error {
		text, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
		if err == nil {
			err = errors.Join(write(w), w.WriteHeader(&tar.Header{Name: trustedFile, Mode: 0o644, Size: int64(len(text))}))
		}
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
}

// nodeFiles returns Node and npm from the packages of npm's registry.
func nodeFiles(t *testing.T) []entry {
	t.Helper()
	dir := hutchtest.Dir(t)
	if out, err := exec.CommandContext(t.Context(), "npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--loglevel=error", "node@22", "npm@10").CombinedOutput(); err != nil {
		t.Fatalf("npm: %v\n%s", err, out)
	}
	modules := filepath.Join(dir, "node_modules")
	list := []entry{{name: "node", content: readLinked(t, filepath.Join(modules, "node", "bin", "node")), mode: 0o755}}
	npm := filepath.Join(modules, "npm")
	err := filepath.WalkDir(npm, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(npm, path)
		if err != nil {
			return err
		}
		list = append(list, entry{name: "npm/" + name, content: readLinked(t, path), mode: 0o755})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func readLinked(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
