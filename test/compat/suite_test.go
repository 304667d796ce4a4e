//go:build compat

package compat_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/daemon"
	"hutch/internal/hutchtest/debian"
)

const (
	suiteDomain  = "sb.test"
	suiteAddress = "127.77.0.1" // an address of its own, because the clients know only the port 443
	expectedFile = "e2b-expected.json"
	page         = "../../docs/compatibility.md"
)

// TestSuite runs those tests of E2B's JavaScript SDK that need a server, from the checkout that E2B_SUITE names. It
// fails if a test ends differently from what the list of expectations says, better or worse. With UPDATE=1 it writes
// the list, and the table in docs/compatibility.md.
func TestSuite(t *testing.T) {
	checkout := os.Getenv("E2B_SUITE")
	if checkout == "" {
		t.Fatal("set E2B_SUITE to a checkout of github.com/e2b-dev/E2B")
	}
	if _, err := exec.LookPath("sudo"); err != nil { // the image of the suite is made of this machine's packages
		t.Fatal("the suite's commands use sudo, which this machine does not have: run `apt-get install sudo`")
	}
	dir := t.TempDir()
	sdk := filepath.Join(checkout, "packages", "js-sdk")
	for _, part := range []string{"src", "tests", "package.json", "tsconfig.json"} {
		run(t, "", nil, "cp", "-r", filepath.Join(sdk, part), dir)
	}
	for _, part := range []string{"vitest.config.mts", "names.cjs"} {
		run(t, "", nil, "cp", filepath.Join("suite", part), dir)
	}
	modules, err := filepath.Abs("suite/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	chain, key := certificate(t, dir)
	url, token := serveE2BWith(t, func(c *daemon.Config) {
		c.Listen, c.E2B, c.TLS = suiteAddress+":443", suiteDomain, daemon.TLS{Cert: chain, Key: key}
		c.Sandboxes.Network = hutch.Network{Mode: hutch.NetworkOpen}
		c.Sandboxes.Max = 50
	})
	loadBase(t, url, token, chain)
	names, err := filepath.Abs(filepath.Join("suite", "names.cjs"))
	if err != nil {
		t.Fatal(err)
	}
	env := []string{
		"E2B_API_KEY=" + token, "E2B_DOMAIN=" + suiteDomain, "E2B_VALIDATE_API_KEY=false", "NODE_EXTRA_CA_CERTS=" + chain,
		"NODE_OPTIONS=--require " + names, "SUITE_DOMAIN=" + suiteDomain, "SUITE_ADDRESS=" + suiteAddress,
	}
	args := append([]string{"vitest", "run", "--reporter=json", "--outputFile=results.json"}, strings.Fields(os.Getenv("E2B_FILES"))...)
	out := run(t, dir, env, "npx", args...)
	t.Logf("%s", tail(out, 3000))
	compare(t, results(t, filepath.Join(dir, "results.json"), dir))
	if os.Getenv("UPDATE") != "" {
		writePage(t, checkout)
	}
}

// loadBase loads what the suite needs into the server, made of this machine's packages: a Debian under the names of the
// images that templates start from, and the template base, which is built from it.
func loadBase(t *testing.T, url, token, chain string) {
	t.Helper()
	pool := x509.NewCertPool()
	text, err := os.ReadFile(chain)
	if err != nil || !pool.AppendCertsFromPEM(text) {
		t.Fatal("the certificate of the suite cannot be read: ", err)
	}
	c := client.New(url, token)
	c.HTTP.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool, ServerName: "api." + suiteDomain}
	for _, name := range []string{"e2bdev/base", "ubuntu:22.04"} {
		var archive bytes.Buffer // made first, because a server does not wait that long for the first byte
		if err := debian.WriteArchive(&archive, name, fillBase); err != nil {
			t.Fatal(err)
		}
		if _, err := c.LoadImages(t.Context(), "", &archive); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.BuildImage(t.Context(), hutch.BuildRequest{Name: "localhost/base", Dockerfile: baseDockerfile}, nil, nil); err != nil {
		t.Fatal(err)
	}
	built := hutch.Template{Labels: map[string]string{"e2b.build": "00000000-0000-4000-8000-000000000000"}} // as if over E2B's API
	if _, err := c.CreateTemplate(t.Context(), hutch.TemplateRequest{Name: "base", Image: "localhost/base", Limits: hutch.Limits{CPU: 1, Memory: 512}, Template: built}); err != nil {
		t.Fatal(err)
	}
}

// baseDockerfile adds E2B's user, who can use sudo without a password. It also writes the configuration of PAM: the
// packages leave that to their install scripts, which have not run.
const baseDockerfile = `FROM e2bdev/base
RUN echo 'user ALL=(ALL:ALL) NOPASSWD: ALL' >/etc/sudoers.d/user && chmod 0440 /etc/sudoers.d/user && mkdir -p /etc/pam.d && \
  for kind in auth account password session session-noninteractive; do echo "${kind%-*} required pam_permit.so" >/etc/pam.d/common-$kind; done
RUN echo user:x:1000:1000::/home/user:/bin/bash >>/etc/passwd && echo user:x:1000: >>/etc/group && ln -sf python3 /usr/bin/python && mkdir -p /home/user && chown user:user /home/user
USER user
WORKDIR /home/user
`

func fillBase(w *tar.Writer) error {
	group := "root:x:0:\n"
	if err := w.WriteHeader(&tar.Header{Name: "etc/group", Size: int64(len(group)), Mode: 0o644}); err != nil {
		return err
	}
	if _, err := io.WriteString(w, group); err != nil {
		return err
	}
	return debian.WriteWith(w, "dash", "findutils", "git", "sudo", "curl", "procps", "passwd", "sed", "hostname", "util-linux", "gzip", "tar", "ncurses-bin", "ncurses-base", "libpam-modules")
}

func tail(text string, most int) string { return text[max(0, len(text)-most):] }

// run runs a program that runs tests. Failed tests are not a failure of the program.
func run(t *testing.T, dir string, env []string, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil && program != "npx" {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
	return string(out)
}

// certificate makes a self-signed certificate for all names of the suite.
func certificate(t *testing.T, dir string) (chain, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: suiteDomain}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{suiteDomain, "*." + suiteDomain}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	made, err := x509.CreateCertificate(rand.Reader, form, form, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	chain, key = filepath.Join(dir, "chain.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{chain: {Type: "CERTIFICATE", Bytes: made}, key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return chain, key
}

// offline matches files of the suite, or tests in them, that need no server and so prove nothing about one.
var offline = regexp.MustCompile(`abortSignal|configPropagation|egressProxy|commandHandle|entryInfo|watchHandle|iam|lifecycleRequest|networkTransform|rpcHeaders|urls|handleApiError|http2|inflight|validateApiKey|git/validation|boundOpts|stacktrace|uploadFile|template/utils|fromDockerfile|toDockerfile`)

// results returns how the tests ended, by file and name.
func results(t *testing.T, path, dir string) map[string]expectation {
	t.Helper()
	var report struct {
		TestResults []struct {
			Name             string
			AssertionResults []struct {
				FullName        string
				Status          string
				FailureMessages []string
			}
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	all := map[string]expectation{}
	for _, file := range report.TestResults {
		name := strings.TrimPrefix(strings.TrimPrefix(file.Name, dir), "/tests/")
		if offline.MatchString(name) {
			continue
		}
		for _, a := range file.AssertionResults {
			e := expectation{Result: a.Status}
			if a.Status == "failed" {
				t.Logf("%s: %s: %.600s", name, a.FullName, strings.Join(a.FailureMessages, "\n"))
			}
			all[strings.TrimSuffix(name, ".test.ts")+": "+a.FullName] = e
		}
	}
	return all
}

func compare(t *testing.T, got map[string]expectation) {
	t.Helper()
	want := expected(t)
	for name, g := range got {
		if w := want[name]; g.Result != w.Result {
			if os.Getenv("UPDATE") == "" {
				t.Errorf("%s: %s, not %s", name, g.Result, cmp.Or(w.Result, "known"))
			}
			want[name] = g
		}
	}
	if os.Getenv("E2B_FILES") == "" {
		for name := range want {
			if _, ran := got[name]; !ran {
				t.Errorf("%s did not run", name)
			}
		}
	}
	t.Logf("%d tests that need a server ran", len(got))
	if os.Getenv("UPDATE") == "" {
		return
	}
	text, err := json.MarshalIndent(want, "", "  ")
	if err == nil {
		err = os.WriteFile(expectedFile, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func expected(t *testing.T) map[string]expectation {
	t.Helper()
	all := map[string]expectation{}
	text, err := os.ReadFile(expectedFile)
	if os.IsNotExist(err) {
		return all
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// writePage puts the counts, and each test that does not pass with its reason, between two marks of the page.
func writePage(t *testing.T, checkout string) {
	t.Helper()
	all := expected(t)
	count := map[string]int{}
	var rows strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e := all[name]
		if count[e.Result]++; e.Result == "failed" {
			fmt.Fprintf(&rows, "| %s | %s |\n", strings.ReplaceAll(name, "|", `\|`), cmp.Or(e.Reason, "not known yet"))
		}
	}
	commit := strings.TrimSpace(run(t, checkout, nil, "git", "rev-parse", "--short=12", "HEAD"))
	var manifest struct{ Version string }
	if text, err := os.ReadFile(filepath.Join(checkout, "packages", "js-sdk", "package.json")); err != nil || json.Unmarshal(text, &manifest) != nil {
		t.Fatal("the checkout has no version of the SDK: ", err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- e2b: begin -->\n", "<!-- e2b: end -->"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, also := strings.Cut(rest, end)
	if !ok || !also {
		t.Fatal(page + " has no marks")
	}
	body := fmt.Sprintf("E2B's JavaScript SDK %s (commit %s): **%d of %d** tests that need a server pass, %d are skipped by the\nsuite.\n\n| fails | why |\n|---|---|\n%s",
		manifest.Version, commit, count["passed"], len(all)-count["skipped"]-count["pending"], count["skipped"]+count["pending"], rows.String())
	if err := os.WriteFile(page, []byte(before+begin+body+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
