package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"hutch/internal/daemon"
	"hutch/internal/datadir"
	"hutch/internal/servers"
)

// TestTokensStayAtHome: no token is sent to a server that it does not belong to,
// and no client mints one.
func TestTokensStayAtHome(t *testing.T) {
	const own = "http://127.0.0.1:7811"
	for _, c := range []struct {
		name             string
		running          bool
		env              map[string]string
		dir, server      bool // --data, --server saved
		wantURL, wantTok string
		fails            bool
	}{
		{name: "the server of the data folder", running: true, wantURL: own, wantTok: "of the folder"},
		{name: "its URL", running: true, env: map[string]string{"HUTCH_URL": own}, wantURL: own, wantTok: "of the folder"},
		{name: "localhost is its own address", running: true, env: map[string]string{"HUTCH_URL": "http://localhost:7811"}, wantURL: own, wantTok: "of the folder"},
		{name: "another port", running: true, env: map[string]string{"HUTCH_URL": "http://127.0.0.1:7812"}, wantURL: "http://127.0.0.1:7812"},
		{name: "another host", running: true, env: map[string]string{"HUTCH_URL": "http://192.0.2.2:7811"}, wantURL: "http://192.0.2.2:7811"},
		{name: "another scheme", running: true, env: map[string]string{"HUTCH_URL": "https://127.0.0.1:7811"}, wantURL: "https://127.0.0.1:7811"},
		{name: "a host that begins alike", running: true, env: map[string]string{"HUTCH_URL": "http://127.0.0.1.evil.example:7811"}, wantURL: "http://127.0.0.1.evil.example:7811"},
		{name: "another program where a killed server was", env: map[string]string{"HUTCH_URL": own}, wantURL: own},
		{name: "no server", wantURL: "http://" + daemon.DefaultListen},
		{name: "the server's variable", running: true, env: map[string]string{"SANDBOX_AUTH_TOKEN": "chosen"}, wantURL: own, wantTok: "chosen"},
		{name: "the server's variable, elsewhere", running: true, env: map[string]string{"SANDBOX_AUTH_TOKEN": "chosen", "HUTCH_URL": "http://192.0.2.2:7811"}, wantURL: "http://192.0.2.2:7811"},
		{name: "the other variable, elsewhere", env: map[string]string{"MCP_API_TOKEN": "chosen", "HUTCH_URL": "https://hutch.example"}, wantURL: "https://hutch.example"},
		{name: "a saved URL", env: map[string]string{"HUTCH_URL": "https://saved.example"}, wantURL: "https://saved.example", wantTok: "of saved"},
		{name: "a saved name", running: true, server: true, env: map[string]string{"HUTCH_TOKEN": "mine"}, wantURL: "https://saved.example", wantTok: "of saved"},
		{name: "HUTCH_TOKEN goes with HUTCH_URL", running: true, env: map[string]string{"HUTCH_URL": "https://saved.example", "HUTCH_TOKEN": "mine"}, wantURL: "https://saved.example", wantTok: "mine"},
		{name: "HUTCH_TOKEN alone", running: true, env: map[string]string{"HUTCH_TOKEN": "mine"}, wantURL: own, wantTok: "mine"},
		{name: "no URL", env: map[string]string{"HUTCH_URL": "127.0.0.1:7811"}, fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := dataFolder(t, own, c.running)
			for _, name := range []string{"HUTCH_URL", "HUTCH_TOKEN", "SANDBOX_AUTH_TOKEN", "MCP_API_TOKEN"} {
				t.Setenv(name, c.env[name])
			}
			h := &home{}
			t.Setenv("HUTCH_DATA", dir)
			t.Setenv("XDG_CONFIG_HOME", t.TempDir())
			path, err := servers.Path()
			if err != nil {
				t.Fatal(err)
			}
			l := servers.List{Servers: []servers.Server{{Name: "saved", URL: "https://saved.example", Token: "of saved"}}}
			if err := l.Save(path); err != nil {
				t.Fatal(err)
			}
			if c.server {
				h.server = "saved"
			}
			got, err := h.target()
			if (err != nil) != c.fails || got.url != c.wantURL || got.token != c.wantTok {
				t.Errorf("%s with the token %q, %v; not %s with %q", got.url, got.token, err, c.wantURL, c.wantTok)
			}
		})
	}
}

// dataFolder returns the data folder of a server that runs, or was killed.
func dataFolder(t *testing.T, url string, runs bool) string {
	dir := t.TempDir()
	server := filepath.Join(dir, "server")
	if err := os.Mkdir(server, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("of the folder\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := datadir.WriteAddress(server, url); err != nil {
		t.Fatal(err)
	}
	f, free, err := datadir.Lock(server)
	if err != nil || !free {
		t.Fatal(free, err)
	}
	if !runs {
		f.Close()
		return dir
	}
	t.Cleanup(func() { f.Close() })
	return dir
}

// TestClientsMakeNothing: in an empty data folder, commands that speak to a server
// leave nothing behind.
func TestClientsMakeNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	t.Setenv("HUTCH_DATA", dir)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, url := range []string{"", "http://127.0.0.1:1"} {
		t.Setenv("HUTCH_URL", url)
		t.Setenv("HUTCH_TOKEN", "")
		for _, args := range [][]string{
			{"ls"}, {"token", "list"}, {"secret", "list"}, {"audit"}, {"authority"}, {"authority", "rotate"}, {"audit", "verify"}, {"pool"},
			{"context", "ls"}, {"version"}, {"__complete", "logs", "x"},
		} {
			c := newRoot(streams{out: io.Discard, err: io.Discard})
			c.SetArgs(args)
			err := c.ExecuteContext(t.Context())
			if fine := args[0] == "context" || args[0] == "version" || args[0] == "__complete"; (err == nil) != fine {
				t.Errorf("%q: %v", args, err)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Fatalf("%q makes the data folder", args)
			}
		}
	}
}
