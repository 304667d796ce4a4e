package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"filippo.io/age"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/fake"
	"hutch/internal/egress"
	"hutch/internal/engine"
	"hutch/internal/fleet"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/pgtest"
	"hutch/internal/image"
	"hutch/internal/rest"
	"hutch/internal/volume"
)

// bed is a fleet of engines on the fake driver in this process, with a real database and real certificates.
type bed struct {
	store, key string
	dir        *fleet.Directory
	nodes      []*member
}

type member struct {
	*fleet.Fleet
	engine  *engine.Engine
	volumes hutch.Volumes
	id      *fleet.Identity
	addr    string
}

// newBed makes a fleet whose nodes all have capacity.
func newBed(t testing.TB, count int, change ...func(i int, o *fleet.Options)) *bed {
	t.Helper()
	b := &bed{store: pgtest.New(t)}
	b.dir = openDirectory(t, b.store)
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	b.key = identity.String()
	for i := range count {
		var id *fleet.Identity
		name := "node-" + string(rune('a'+i%26))
		if i >= 26 {
			name += fmt.Sprint(i)
		}
		if i == 0 {
			id, err = fleet.Found(t.Context(), b.dir, name, b.store, b.key)
		} else {
			id, err = b.join(t, name)
		}
		if err != nil {
			t.Fatal(err)
		}
		b.nodes = append(b.nodes, b.begin(t, id, func(o *fleet.Options) {
			for _, c := range change {
				c(i, o)
			}
		}))
	}
	for _, n := range b.nodes { // wait until each node knows the others and their leases
		eventually(t, "all nodes are known", func() bool { return alive(n) == count })
	}
	return b
}

func (b *bed) join(t testing.TB, name string) (*fleet.Identity, error) {
	t.Helper()
	token, err := fleet.NewToken(t.Context(), b.dir, b.nodes[0].id, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return fleet.Join(t.Context(), b.nodes[0].addr, token, name)
}

func openDirectory(t testing.TB, store string) *fleet.Directory {
	t.Helper()
	d, err := fleet.OpenDirectory(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// begin starts a node, which ends with the test.
func (b *bed) begin(t testing.TB, id *fleet.Identity, change func(*fleet.Options)) *member {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	volumes, err := volume.Open(t.TempDir(), volume.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := &member{engine: newEngine(t, func(o *engine.Options) { o.Volumes = volumes }), id: id, addr: l.Addr().String()}
	m.volumes = volume.NewService(volume.ServiceOptions{Store: volumes, Uses: m.engine.VolumeUses, Save: m.engine.SaveVolumes})
	opt := fleet.Options{
		Directory: openDirectory(t, id.Store), Identity: id, Address: m.addr, Version: "test",
		Room: hutch.NodeRoom{Memory: 1 << 20, CPU: 1000, Sandboxes: 1000}, Here: m.engine, Previews: m.engine, Volumes: m.volumes,
	}
	opt.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	change(&opt)
	if m.Fleet, err = fleet.Begin(t.Context(), opt); err != nil {
		t.Fatal(err)
	}
	if err := m.Open(l, rest.Options{Images: snapshotImages{e: m.engine}, Accounts: m.engine, Volumes: m.volumes}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil && !errors.Is(err, hutch.Unavailable) {
			t.Error(err)
		}
	})
	return m
}

func newEngine(t testing.TB, change ...func(*engine.Options)) *engine.Engine {
	t.Helper()
	opt := engine.Options{
		Dir: t.TempDir(), Drivers: []driver.Driver{fake.New(t.TempDir())}, Ephemeral: true, Sealer: hutchtest.Sealer(t),
		Image: func(context.Context, string) (image.Root, error) { return image.Root{}, nil },
		Gateway: func(x engine.Exit) (engine.Gateway, error) {
			return egress.New(x.Network, egress.Options{Sandbox: x.Sandbox})
		},
		PreviewURL: func(label string) string { return "http://" + label + ".localhost" },
	}
	for _, c := range change {
		c(&opt)
	}
	e := engine.New(opt)
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// eventually waits for ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("this did not come: %s", what)
		}
	}
}
