package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/hutchtest/dockerd"
)

// TestDocker: the runtime docker runs images of a registry. The engine of Docker never contacts that registry: Hutch does.
func TestDocker(t *testing.T) {
	t.Setenv("DOCKER_HOST", dockerd.StartHere(t).Host)
	b := newBed(t, "docker")
	sb := b.make(t, python)
	for command, want := range map[string]string{
		"python3 -c 'print(6*7)'":                                   "42",
		"echo $COLOUR $(id -u)":                                     "red 1000",
		"head -1 /etc/os-release":                                   "PRETTY_NAME",
		"stat -c '%u %g' /usr/bin":                                  "0 0",
		"stat -c '%g' /etc/shadow":                                  "42", // owners are kept
		"touch /etc/x /usr/x 2>&1 | grep -c -e Read-only -e denied": "2",
		"find / -xdev -perm /6000 -type f 2>/dev/null | head -1":    "",
		"ls /.hutch/private 2>&1 | grep -c denied":                  "1",
		"grep -c hutch-sandbox /etc/hosts /etc/resolv.conf | wc -l": "2",
		"cd /tmp && mkdir -p own && ln -s /etc/passwd own/l && echo kept > own/word && cat own/word": "kept",
	} {
		if got := b.run(t, sb.ID, command); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s prints %q, not %q", command, got, want)
		}
	}
	b.run(t, sb.ID, "echo mine > /workspace/mine; echo home > ~/home")

	// Its files outlive its container.
	if _, err := b.Hibernate(t.Context(), sb.ID, hutch.HibernateRequest{}); err != nil {
		t.Fatal(err)
	}
	b.until(t, sb.ID, hutch.Stopped)
	if got := b.run(t, sb.ID, "cat /workspace/mine /tmp/own/word"); got != "mine\nkept" {
		t.Errorf("after its sleep it has %q", got)
	}

	// An image without a shell, and with a user of its own.
	hello := b.make(t, "hello:1")
	if got := b.run(t, hello.ID, "/program"); got != "hello 7000 7001 /data 1" {
		t.Errorf("it prints %q", got)
	}
	b.muslInDocker(t)
	var context bytes.Buffer
	if err := tar.NewWriter(&context).Close(); err != nil {
		t.Fatal(err)
	}
	_, err := b.BuildImage(t.Context(), hutch.BuildRequest{Dockerfile: "FROM " + python + "\nRUN true\n"}, &context, nil)
	if !errors.Is(err, hutch.Unsupported) || !strings.Contains(err.Error(), "docker") {
		t.Errorf("a RUN: %v", err)
	}
	_, err = b.Create(t.Context(), hutch.CreateRequest{Image: python, User: "root"})
	if !errors.Is(err, hutch.Unsupported) || !strings.Contains(err.Error(), "gvisor") {
		t.Errorf("a sandbox with root: %v", err)
	}
}

// muslInDocker: an image without glibc and bash runs, and its files outlive its container.
func (b *bed) muslInDocker(t *testing.T) {
	b.pullMusl(t)
	sb := b.make(t, muslImage)
	for command, want := range map[string]string{
		"tool whoami":                    "app 1500 1501",
		"tool threads 50":                "50 threads",
		"echo mine >file; tool cat file": "mine",
	} {
		if got := b.run(t, sb.ID, command); got != want {
			t.Errorf("%s prints %q, not %q", command, got, want)
		}
	}
	b.muslShells(t, sb.ID)
	if _, err := b.Hibernate(t.Context(), sb.ID, hutch.HibernateRequest{}); err != nil {
		t.Fatal(err)
	}
	b.until(t, sb.ID, hutch.Stopped)
	if got := b.run(t, sb.ID, "tool cat /workspace/file"); got != "mine" {
		t.Errorf("after its sleep it has %q", got)
	}
	if _, err := b.Destroy(t.Context(), sb.ID, true); err != nil {
		t.Error(err)
	}
}
