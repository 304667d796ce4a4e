package broker_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"software.sslmate.com/src/go-pkcs12"
)

const (
	pythonClient = `
import os, socket, sys, urllib.request
socket.getaddrinfo = lambda host, port, *a, **k: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
r = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + os.environ["API_KEY"]})
print(urllib.request.urlopen(r).read().decode())`
	nodeClient = `
const lookup = (host, opt, done) => opt.all ? done(null, [{address: "127.0.0.1", family: 4}]) : done(null, "127.0.0.1", 4);
require("https").get(process.argv[1], {lookup, headers: {Authorization: "Bearer " + process.env.API_KEY}}, r => r.on("data", d => process.stdout.write(d)));`
	javaClient = `
public class Client { public static void main(String[] a) throws Exception {
	var c = (java.net.HttpURLConnection) new java.net.URL(a[0]).openConnection();
	c.setRequestProperty("Authorization", "Bearer " + System.getenv("API_KEY"));
	System.out.print(new String(c.getInputStream().readAllBytes())); } }`
)

// TestClients uses real clients, which are not configured for a broker and trust what the host image makes them trust.
func TestClients(t *testing.T) {
	t.Parallel()
	repository := git(t)
	s := newScene(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, ok := r.BasicAuth(); ok && password == key {
			repository.ServeHTTP(w, r)
			return
		}
		if r.Header.Get("Authorization") != "Bearer "+key {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, "granted")
	}), credential("replace", ""))
	_, port, _ := net.SplitHostPort(s.addr)
	n, _ := strconv.Atoi(port)
	s.mu.Lock()
	s.port = uint16(n)
	s.mu.Unlock()

	dir := t.TempDir()
	ca, store, hosts, source := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cacerts"), filepath.Join(dir, "hosts"), filepath.Join(dir, "Client.java")
	block, _ := pem.Decode(s.authority.Certificate())
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := pkcs12.Passwordless.EncodeTrustStore([]*x509.Certificate{cert}, "")
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{ca: string(s.authority.Certificate()), store: string(trusted), hosts: "127.0.0.1 " + host + "\n", source: javaClient} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	placeholder := credential("", "").Placeholder
	url := "https://" + net.JoinHostPort(host, port) + "/"
	resolve := net.JoinHostPort(host, port) + ":127.0.0.1"
	for _, tt := range []struct {
		want    string
		command []string
	}{
		{"granted", []string{"curl", "-sS", "--http1.1", "--cacert", ca, "--resolve", resolve, "-H", "Authorization: Bearer " + placeholder, url}},
		{"granted", []string{"curl", "-sS", "--http2", "--cacert", ca, "--resolve", resolve, "-H", "Authorization: Bearer " + placeholder, url}},
		{"refs/heads/main", []string{"git", "-c", "http.curloptResolve=" + resolve, "ls-remote", strings.Replace(url, "://", "://x:"+placeholder+"@", 1) + "repo.git"}},
		{"granted", []string{"python3", "-c", pythonClient, url}},
		{"granted", []string{"node", "-e", nodeClient, url}},
		{"granted", []string{"java", "-Djdk.net.hosts.file=" + hosts, "-Djavax.net.ssl.trustStore=" + store, source, url}},
	} {
		t.Run(tt.command[0], func(t *testing.T) {
			if _, err := exec.LookPath(tt.command[0]); err != nil {
				t.Skip("it is not here")
			}
			cmd := exec.Command(tt.command[0], tt.command[1:]...)
			cmd.Env = append(os.Environ(), "API_KEY="+placeholder, "SSL_CERT_FILE="+ca, "NODE_EXTRA_CA_CERTS="+ca, "GIT_SSL_CAINFO="+ca, "GIT_TERMINAL_PROMPT=0")
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), tt.want) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// git serves a repository with one commit.
func git(t *testing.T) http.Handler {
	dir := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", "work"}, {"-C", "work", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first"},
		{"clone", "-q", "--bare", "work", "repo.git"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("git %s: %v\n%s", args, err, out)
		}
	}
	backend, _ := exec.Command("git", "--exec-path").Output()
	return &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(backend)), "git-http-backend"), Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}
}
