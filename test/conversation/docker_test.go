package conversation_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/dockerd"
)

// ruby is a runner's program. It is not Ruby: it prints what it reads, who it is, and whether it finds a network.
const ruby = `package main

import ("fmt"; "io"; "net"; "os")

func main() {
	source, _ := io.ReadAll(os.Stdin)
	wd, _ := os.Getwd()
	_, err := net.Dial("tcp", "198.51.100.1:80")
	fmt.Printf("%s %d %s %v\n", source, os.Getuid(), wd, err != nil)
	os.WriteFile("made.txt", source, 0o644)
}
`

// TestRunnerOfDocker: an image that Docker builds on this machine, before or after the start of the server, becomes a
// language of conversations.
func TestRunnerOfDocker(t *testing.T) {
	t.Parallel()
	hutchtest.Driver(t, "gvisor", hutchtest.Dir(t)) // skips the test where the runtime does not work
	host := dockerd.Start(t).Host
	dockerd.Build(t, host, "runner-other:1", runnerFiles(t, "other"))
	d := deploy(t)
	for i, kv := range d.env {
		if strings.HasPrefix(kv, "DOCKER_HOST=") {
			d.env[i] = "DOCKER_HOST=" + host
		}
	}
	d.start(t)
	dockerd.Build(t, host, "runner-ruby:1", runnerFiles(t, "ruby"))
	for _, language := range []string{"other", "ruby"} {
		for end := time.Now().Add(time.Minute); !d.has(t, language); time.Sleep(200 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the image is not a runner: %s", d.session(t)("tools/call", `{"name":"sandbox.list_runners","arguments":{}}`))
			}
		}
	}
	res := d.run(t, "docker", "ruby", "puts 1")
	if res.Stdout != "puts 1 1000 /data true\n" || len(res.Files) != 1 || res.Files[0].Name != "made.txt" {
		t.Errorf("result %+v", res)
	}
}

func (d *deployment) has(t *testing.T, language string) bool {
	t.Helper()
	return strings.Contains(string(d.session(t)("tools/call", `{"name":"sandbox.list_runners","arguments":{}}`)), `"language":"`+language+`"`)
}

// runnerFiles returns the files from which docker build makes a runner for a language.
func runnerFiles(t *testing.T, language string) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "runner")
	if err := os.WriteFile(source, []byte(ruby), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-o", program, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"runner":     b,
		"Dockerfile": []byte("FROM scratch\nCOPY runner /runner\nLABEL sandbox.runner=true sandbox.language=" + language + "\nUSER 1000\nENTRYPOINT [\"/runner\"]\n"),
	}
}
