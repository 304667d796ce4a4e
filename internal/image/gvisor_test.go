package image_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/image"
)

func init() { image.FirstGoProgram = firstGoProgram }

// firstGoProgram runs a first Go program in a sandbox on gVisor, where compiling the standard library takes longer
// than the 30 seconds that a command has, and counts what was compiled.
func firstGoProgram(t *testing.T, root image.Root) {
	dir := hutchtest.Dir(t)
	e := engine.New(engine.Options{
		Dir: dir, Drivers: []driver.Driver{hutchtest.Driver(t, "gvisor", filepath.Join(dir, "gvisor"))}, Ephemeral: true,
		Image: func(context.Context, string) (image.Root, error) { return root, nil },
		Log:   slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	sb, err := e.Create(t.Context(), hutch.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	const program = "package main\nimport \"fmt\"\nfunc main() { fmt.Println(\"hi\") }\n"
	r, err := e.Exec(t.Context(), sb.ID, hutch.ExecRequest{Language: "go", Command: program}, nil)
	if err != nil || !r.Success() || string(r.Stdout) != "hi\n" {
		t.Fatalf("exit code %d, timed out %t, after %v: %q, %v\n%s", r.ExitCode, r.TimedOut, r.Duration, r.Stdout, err, r.Stderr)
	}
	t.Logf("it took %v", r.Duration)
	r, err = e.Exec(t.Context(), sb.ID, hutch.ExecRequest{Command: "find ~/.cache/go-build -name '*-d' | wc -l"}, nil)
	if n := strings.TrimSpace(string(r.Stdout)); err != nil || len(n) != 1 {
		t.Errorf("%s packages were compiled, %v", n, err)
	}
}
