package contract

import (
	"context"
	"os"
	"testing"

	"hutch"
	"hutch/internal/hutchtest"
	"hutch/internal/servicetest"
)

// TestCopies runs the contract on sandboxes that share files.
func TestCopies(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's sandboxes share files")
	}
	servicetest.Run(t, func(t *testing.T) hutch.Service { return copied(t, hutchtest.Engine(t, "native", nil)) })
}

// copying is a service whose sandboxes start from a snapshot.
type copying struct {
	hutch.Service
	snapshot string
}

func (c copying) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	if req.Snapshot == "" && req.Template == "" && req.Limits == (hutch.Limits{}) && req.Image == "" {
		req.Snapshot = c.snapshot
	}
	return c.Service.Create(ctx, req)
}

// copied creates a snapshot with enough files, and returns a service whose sandboxes all start from it.
func copied(t *testing.T, svc hutch.Service) hutch.Service {
	t.Helper()
	sb, err := svc.Create(t.Context(), hutch.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := svc.Exec(t.Context(), sb.ID, hutch.ExecRequest{Command: "head -c 5M /dev/urandom > /var/tmp/large"}, nil)
	if err != nil || !res.Success() {
		t.Fatalf("%+v, %v", res, err)
	}
	snap, err := svc.Snapshot(t.Context(), sb.ID, hutch.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Destroy(t.Context(), sb.ID, true); err != nil {
		t.Fatal(err)
	}
	c := copying{svc, snap.ID}
	one, err := c.Create(t.Context(), hutch.CreateRequest{KeepAlive: true}) // this sandbox stays alive, so the shared layer is kept
	if err != nil {
		t.Fatal(err)
	}
	res, err = svc.Exec(t.Context(), one.ID, hutch.ExecRequest{Command: "stat -f -c %T /"}, nil)
	if err != nil || string(res.Stdout) != "overlayfs\n" {
		t.Fatalf("the root is a %s: nothing is shared, %v", res.Stdout, err)
	}
	return c
}
