package gvisor

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A start that hangs is ended early, logged, and tried once more.
func TestStartThatHangs(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	if d.tree == nil {
		skip(t, "without control groups what hangs is not all found")
	}
	var log bytes.Buffer
	d.opt.Log, d.firstTime = slog.New(slog.NewTextHandler(&log, nil)), 4*time.Second
	once := filepath.Join(t.TempDir(), "once")
	script := fmt.Sprintf("#!/bin/sh\nif mkdir %s 2>/dev/null; then sleep 1000; fi\nexec %s \"$@\"\n", once, d.build.Runsc)
	d.build.Runsc = filepath.Join(t.TempDir(), "runsc")
	if err := os.WriteFile(d.build.Runsc, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	inst, err := d.Create(t.Context(), spec("hangs"))
	if err != nil {
		t.Fatal(err)
	}
	if err := inst.Destroy(context.Background()); err != nil {
		t.Error(err)
	}
	if text := log.String(); !strings.Contains(text, "did not start in time") || !strings.Contains(text, "create") {
		t.Errorf("the log says %q", text)
	}
}

// A sentry that is stopped while its daemon starts is recovered, and continues.
func TestRecoverOfStoppedSentry(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	inst, err := d.Create(t.Context(), spec("still"))
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Destroy(context.Background())
	// The handle is enough to find the instance. Without the socket, nothing seems to listen.
	socket := fmt.Sprintf("/proc/%d/root%s/%s", inst.(*instance).procs.Gofer.PID, socketDir, agentSocket)
	if err := os.Rename(socket, socket+".aside"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	found, err := d.Recover(ctx, "still", inst.Handle())
	if err != nil {
		t.Fatalf("it is taken for dead: %v", err)
	}
	if err := os.Rename(socket+".aside", socket); err != nil {
		t.Fatal(err)
	}
	if err := found.(*instance).sentry.Signal(unix.Signal(0)); err != nil {
		t.Errorf("it died: %v", err)
	}
}
