package build

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hutch"
)

// The frontend is a process with limits, and its end is an error of the build.
func TestFrontendEnds(t *testing.T) {
	asked := false
	resolve := func(context.Context, string) (string, []byte, error) {
		pid := frontendOf(t)
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
		if err != nil {
			t.Error(err)
		}
		for _, name := range []string{"Max cpu time", "Max file size", "Max address space", "Max core file size"} {
			_, rest, _ := strings.Cut(string(limits), name)
			if soft := strings.Fields(rest); len(soft) == 0 || soft[0] == "unlimited" {
				t.Errorf("the frontend has no limit: %s\n%s", name, limits)
			}
		}
		asked = true
		return "", nil, syscall.Kill(pid, syscall.SIGKILL)
	}
	_, err := parse(t.Context(), []byte("FROM a\n"), hutch.BuildRequest{}, resolve, func(string) {})
	if !errors.Is(err, hutch.Exhausted) || !asked {
		t.Errorf("the build ends with %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("nobody waits")
	_, err = parse(ctx, []byte("FROM a\n"), hutch.BuildRequest{}, func(context.Context, string) (string, []byte, error) {
		cancel(why)
		return "", nil, nil
	}, func(string) {})
	if !errors.Is(err, why) {
		t.Errorf("a build that is ended ends with %v", err)
	}
}

// frontendOf returns the pid of the process that reads a Dockerfile for this process.
func frontendOf(t *testing.T) int {
	t.Helper()
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(text)) {
			name, _ := os.ReadFile("/proc/" + child + "/cmdline")
			if strings.HasPrefix(string(name), frontendName) {
				pid, _ := strconv.Atoi(child)
				return pid
			}
		}
	}
	t.Fatal("there is no frontend")
	return 0
}

// Errors of the frontend, and of images that the caller cannot find, keep their kinds.
func TestFrontendErrors(t *testing.T) {
	none := hutch.Errorf(hutch.NotFound, "no such image")
	resolve := func(context.Context, string) (string, []byte, error) { return "", nil, none }
	if _, err := parse(t.Context(), []byte("FROM a\n"), hutch.BuildRequest{}, resolve, func(string) {}); err != error(none) {
		t.Errorf("an image that is missing: %v", err)
	}
	var warned []string
	_, err := parse(t.Context(), []byte("# syntax=other\nFROM a\nFETCH b\n"), hutch.BuildRequest{}, resolve, func(w string) { warned = append(warned, w) })
	if !errors.Is(err, hutch.Invalid) || !strings.Contains(err.Error(), "line 3") || len(warned) != 1 {
		t.Errorf("an unknown instruction: %v, warned of %q", err, warned)
	}
	_, err = parse(t.Context(), []byte(strings.Repeat("FROM scratch\n", mostStages+1)), hutch.BuildRequest{}, resolve, func(string) {})
	if e, ok := errors.AsType[*hutch.Error](err); !ok || e.Kind != hutch.Exhausted || e.Data["limit"] == nil {
		t.Errorf("too many stages: %v", err)
	}
}

// The frontend makes no connections: BuildKit's own frontend would ask the SSH server of a repository for its keys, at
// any address.
func TestFrontendHasNoNetwork(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan struct{}, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Close()
			asked <- struct{}{}
		}
	}()
	text := fmt.Sprintf("FROM scratch\nADD ssh://git@%s/a/b.git /x\n", l.Addr())
	g, err := parse(t.Context(), []byte(text), hutch.BuildRequest{}, nil, func(string) {})
	if err != nil || len(g.vertices) < 2 {
		t.Errorf("the graph is %+v, %v", g, err)
	}
	_, err = parse(t.Context(), []byte("FROM scratch\nADD git@git.example.com:a/b.git /x\n"), hutch.BuildRequest{}, nil, func(string) {})
	if err != nil {
		t.Errorf("a repository of a name: %v", err)
	}
	select {
	case <-asked:
		t.Error("the frontend asked the server")
	case <-time.After(100 * time.Millisecond):
	}
}
