package contract

import (
	"bytes"
	"context"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/auth"
	"hutch/internal/engine"
	"hutch/internal/guard"
	"hutch/internal/hutchtest"
	"hutch/internal/policy"
	"hutch/internal/rest"
	"hutch/internal/volume"
)

// volumeClient returns a client of a server with volumes, through all layers.
func volumeClient(t *testing.T, runtime string) *client.Client {
	t.Helper()
	s, err := volume.Open(filepath.Join(t.TempDir(), "volumes"), volume.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := hutchtest.Engine(t, runtime, func(o *engine.Options) {
		pooled(o)
		o.Volumes = s
	})
	tokens, err := auth.Open(t.Context(), auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	minted, err := tokens.CreateToken(t.Context(), hutch.TokenRequest{Name: "contract", Scopes: hutch.Scopes})
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.New(t.Context(), e, policy.Options{Tokens: tokens, Volumes: volume.NewService(volume.ServiceOptions{Store: s, Uses: e.VolumeUses, Save: e.SaveVolumes})})
	if err != nil {
		t.Fatal(err)
	}
	h := rest.NewHandler(p, rest.Options{Volumes: p})
	srv := httptest.NewServer(guard.New(h, guard.Options{Check: tokens.Check, Unbounded: rest.Uploads}))
	c := client.New(srv.URL, minted.Secret)
	t.Cleanup(func() {
		c.Close()
		h.Close()
		srv.Close()
	})
	return c
}

func sh(t *testing.T, c *client.Client, id, command string) string {
	t.Helper()
	r, err := c.Exec(t.Context(), id, hutch.ExecRequest{Command: command}, nil)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return string(r.Stdout) + string(r.Stderr)
}

// TestVolumes follows a volume through sleep, copies and the end of its sandboxes.
func TestVolumes(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			c, ctx := volumeClient(t, runtime), t.Context()
			if _, err := c.CreateVolume(ctx, hutch.VolumeRequest{Name: "data", Quota: 8}); err != nil {
				t.Fatal(err)
			}
			at := func(readOnly bool) []hutch.VolumeMount {
				return []hutch.VolumeMount{{Name: "data", Path: "/workspace/data", ReadOnly: readOnly}}
			}
			create := func(req hutch.CreateRequest) {
				t.Helper()
				if sb, err := c.Create(ctx, req); err != nil || len(sb.Volumes) != len(req.Volumes) {
					t.Fatalf("%+v, %v", sb.Volumes, err)
				}
			}
			kept := func() string {
				var b bytes.Buffer
				if err := c.ReadVolume(ctx, "data", "f", &b); err != nil {
					return err.Error()
				}
				return b.String()
			}

			create(hutch.CreateRequest{ID: "one", Volumes: at(false), SleepAfter: 0.3})
			sh(t, c, "one", "echo first > data/f")
			asleep(t, c, "one")
			if got := kept(); !strings.Contains(got, "first") {
				t.Errorf("asleep, the volume has %.100q", got)
			}
			if got := sh(t, c, "one", "cat data/f; echo second > data/f"); got != "first\n" {
				t.Errorf("awake again, it has %q", got)
			}
			snap, err := c.Snapshot(ctx, "one", hutch.SnapshotRequest{})
			if err != nil {
				t.Fatal(err)
			}
			forks, err := c.Fork(ctx, "one", hutch.ForkRequest{Count: 1})
			if err != nil || len(forks[0].Volumes) != 0 {
				t.Fatalf("a fork has %+v, %v", forks, err)
			}
			fork := forks[0].ID
			if got := sh(t, c, fork, "cat data/f; echo of the fork > data/f"); got != "second\n" {
				t.Errorf("the fork has %q", got)
			}
			if _, err := c.Destroy(ctx, fork, true); err != nil {
				t.Error(err)
			}
			asleep(t, c, "one")
			if _, err := c.Destroy(ctx, "one", false); err != nil { // destroying does not wake it
				t.Error(err)
			}
			if got := kept(); !strings.Contains(got, "second") {
				t.Errorf("after its sandbox, the volume has %.100q", got)
			}

			// A copy of a snapshot can have a volume, in addition to the files that it starts with.
			create(hutch.CreateRequest{ID: "copy", Snapshot: snap.ID, Volumes: []hutch.VolumeMount{{Name: "data", Path: "/data/v"}}})
			if got := sh(t, c, "copy", "cat data/f /data/v/f; echo third > /data/v/f"); got != "second\nsecond\n" {
				t.Errorf("a copy has %q", got)
			}
			if _, err := c.SaveVolumes(ctx, "copy"); err != nil {
				t.Error(err)
			}
			create(hutch.CreateRequest{ID: "reader", Volumes: at(true), Limits: hutch.Limits{Memory: 256, Disk: 16}})
			if got := sh(t, c, "reader", "cat data/f"); got != "third\n" {
				t.Errorf("a reader has %q", got)
			}
			sh(t, c, "copy", "head -c 6M /dev/urandom > /data/v/large")
			if _, err := c.Destroy(ctx, "copy", false); err != nil {
				t.Error(err)
			}
			if _, err := c.Create(ctx, hutch.CreateRequest{ID: "small", Volumes: at(true), Limits: hutch.Limits{Disk: 4}}); hutch.KindOf(err) != hutch.Exhausted || !strings.Contains(err.Error(), "disk limit") {
				t.Errorf("a sandbox that is too small: %v", err)
			}
			v, err := c.Volume(ctx, "data")
			if err != nil || len(v.Uses) != 1 || v.Uses[0].SandboxID != "reader" || v.Size < 6<<20 {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

// asleep waits until a sandbox sleeps.
func asleep(t *testing.T, c *client.Client, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		sb, err := c.Sandbox(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if sb.Status == hutch.Hibernated || sb.Status == hutch.Stopped {
			tick.Stop()
			return
		}
		<-tick.C
	}
}
