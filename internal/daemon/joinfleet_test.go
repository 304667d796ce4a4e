package daemon

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/fleet"
	"hutch/internal/hutchtest/pgtest"
)

// joining returns the configuration of a server that joins by itself.
func joining(server func() Config, node string) Config {
	cfg := server()
	cfg.Node, cfg.Fleet = node, Fleet{Listen: "127.0.0.1:0", Join: true}
	return cfg
}

// Servers with one database and one key found a fleet and join it by themselves, even if all start at once. After a
// restart they are the same nodes as before.
func TestServersJoinByThemselves(t *testing.T) {
	t.Parallel()
	server := installation(t, pgtest.New(t))
	configs := make([]Config, 3)
	for i := range configs {
		configs[i] = joining(server, fmt.Sprint("pod-", i))
	}
	for round := range 2 {
		all := make([]*Daemon, len(configs))
		var opening sync.WaitGroup
		for i, cfg := range configs {
			opening.Go(func() {
				d, err := Open(t.Context(), cfg)
				if err != nil {
					t.Error(err)
					return
				}
				all[i] = d
			})
		}
		opening.Wait()
		if !t.Failed() {
			eventually(t, "each knows all", func() bool {
				for _, d := range all {
					if len(d.fleet.Nodes()) != len(all) {
						return false
					}
				}
				return true
			})
		}
		for i, d := range all {
			if d == nil {
				continue
			}
			if epoch := epochOf(d); epoch != int64(round+1) {
				t.Errorf("%s began %d times, in round %d", configs[i].Node, epoch, round)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			return
		}
	}
}

func epochOf(d *Daemon) int64 {
	for _, n := range d.fleet.Nodes() {
		if n.ID == d.identity.Node {
			return n.Epoch
		}
	}
	return 0
}

// A server whose data folder is lost is refused, unless it is configured to replace its lost self. Then the sandboxes
// of the lost server are gone, and their ids are free.
func TestALostDataFolder(t *testing.T) {
	t.Parallel()
	server := installation(t, pgtest.New(t))
	d, c, end := start(t, joining(server, "pod-0"))
	if _, err := c.Create(t.Context(), hutch.CreateRequest{ID: "box"}); err != nil {
		t.Fatal(err)
	}
	if d.identity == nil || d.identity.Node != "pod-0" {
		t.Fatalf("the identity is %+v", d.identity)
	}
	end()

	lost := joining(server, "pod-0") // same name, but an empty data folder
	if d, err := Open(t.Context(), lost); hutch.KindOf(err) != hutch.Conflict || !strings.Contains(fmt.Sprint(err), "--fleet-replace") {
		t.Fatalf("a node without its data folder: %v %v", d, err)
	}
	lost.Fleet.Replace = true
	_, c, _ = start(t, lost)
	if list, err := c.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(list) != 0 {
		t.Errorf("the new node has %v, %v", list, err)
	}
	if _, err := c.Create(t.Context(), hutch.CreateRequest{ID: "box"}); err != nil {
		t.Errorf("the id of a lost sandbox: %v", err)
	}
}

// Missing or contradictory settings are reported before anything is created.
func TestJoiningRefused(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	server := installation(t, url)
	for name, change := range map[string]func(*Config){
		"HUTCH_SECRET_KEY": func(c *Config) { c.Secrets.Key = "" },
		"--fleet-listen":   func(c *Config) { c.Fleet.Listen = "" },
		"--fleet-join":     func(c *Config) { c.Fleet.Join, c.Fleet.Replace = false, true },
		"--store":          func(c *Config) { c.Store = "" },
	} {
		cfg := joining(server, "pod-0")
		change(&cfg)
		if _, err := Open(t.Context(), cfg); hutch.KindOf(err) != hutch.Invalid || !strings.Contains(fmt.Sprint(err), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	start(t, joining(server, "pod-0"))
	stranger := joining(installation(t, url), "pod-1") // with another key
	if _, err := Open(t.Context(), stranger); hutch.KindOf(err) != hutch.Invalid {
		t.Errorf("with the key of another fleet: %v", err)
	}
	if _, err := fleet.ReadIdentity(datadir.NodeIdentity(stranger.Data.Path(datadir.Server))); err == nil {
		t.Error("a stranger has an identity")
	}
}
