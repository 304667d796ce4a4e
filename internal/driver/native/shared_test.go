package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/image"
	"hutch/internal/wire"
)

// All processes of one instance together can open at most half of the machine's files, provided that half is enough for
// programs to work.
func TestMaxFiles(t *testing.T) {
	p := newInstance(t, nil)
	for _, c := range []struct {
		machine uint64
		pids    int
		want    uint64
	}{
		{2_466_177, 512, 2408}, {2_466_177, 64, 19267}, {2_466_177, 32768, fewestFiles},
		{9_223_372_036_854_775_807, 512, mostFiles}, {100_000, 0, 50_000},
	} {
		if got := maxFiles(c.machine, c.pids); got != c.want {
			t.Errorf("%d files of a machine with %d, for each of %d processes; not %d", got, c.machine, c.pids, c.want)
		}
	}
	p.want("ulimit -Hn", fmt.Sprint(maxFiles(fileMax(), 256)))
}

// Kernel memory of sockets is counted for the instance, too. The program prints how many MiB the kernel uses for all
// sockets of the machine, before and after.
func TestSocketBuffersAreCharged(t *testing.T) {
	p := newInstance(t, nil)
	if p.Instance.(*instance).group == nil {
		skip(t, "no control groups here")
	}
	if err := p.Instance.(*instance).group.Limit(groupLimits(hutch.Limits{Memory: 128})); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"TCP", "UDP"} {
		out, exit := p.run("python3 -c '" + fillSockets + "' " + kind)
		var before, after int
		if _, err := fmt.Sscan(strings.ReplaceAll(out, "\n", " "), &before, &after); err != nil && exit.Signal == 0 {
			t.Errorf("%s: %q, exit code %d", kind, out, exit.Code)
		}
		t.Logf("%s: from %d to %d MiB", kind, before, after)
		if after-before > 200 {
			t.Errorf("%s sockets of an instance with 128 MiB hold %d MiB", kind, after-before)
		}
	}
	if os.Geteuid() == 0 {
		p.want("echo alive", "alive")
	}
}

const fillSockets = `
import socket, sys
def held():
    for line in open("/proc/net/sockstat"):
        if line.startswith(sys.argv[1] + ":"): return int(line.split()[line.split().index("mem") + 1]) * 4096 >> 20
print(held(), flush=True)
keep, block = [], bytes(32768)
for n in range(150):
    if sys.argv[1] == "TCP":
        server = socket.create_server(("127.0.0.1", 0))
        a = socket.socket()
        a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        a.connect(server.getsockname())
        b = server.accept()[0]
    else:
        b = socket.socket(type=socket.SOCK_DGRAM)
        b.bind(("127.0.0.1", 0))
        a = socket.socket(type=socket.SOCK_DGRAM)
        a.connect(b.getsockname())
    b.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    a.setblocking(False)
    keep.append((a, b))
    try:
        for m in range(512): a.send(block)
    except OSError: pass
print(held(), flush=True)
`

// A masked path is hidden whether the host has it when an instance is created, gets it later, or loses it. Masking
// writes nothing to the host.
func TestMasks(t *testing.T) {
	t.Parallel()
	const target = "/usr/local/games"
	r, dir := root(t), t.TempDir()
	if _, ok := r.Resolve(target); !ok {
		t.Skipf("this host has no %s to lay a folder over", target)
	}
	for name, text := range map[string]string{"pip.conf": "secret", "lib/npmrc": "secret", "shown": "shown"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	r.Binds = append(slices.Clone(r.Binds), image.Bind{Source: dir, Target: target})
	for _, name := range []string{"pip.conf", "lib/npmrc", ".env", "etc/deep/auth"} {
		r.Masks = append(slices.Clone(r.Masks), target+"/"+name)
		r.Binds = append(r.Binds, image.Bind{Source: os.DevNull, Target: target + "/" + name}) // two of them without a file
	}
	i, err := newDriver(t, t.TempDir()).Create(t.Context(), spec(r, "masks"))
	if err != nil {
		t.Fatal(err, hutch.AsError(err).Cause)
	}
	p := &tested{t, i, wire.NewClient(i.Dial, token)}
	t.Cleanup(func() { p.agent.Close(); i.Destroy(context.Background()) })
	look := "cd " + target + "; cat pip.conf lib/npmrc .env etc/deep/auth 2>/dev/null; cat shown; ls -A; ls -A lib"
	p.want(look, "shownlib\nshown")
	for _, name := range []string{".env", "etc/deep/auth", "pip.conf"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil && name != "pip.conf" {
			t.Errorf("%s was made on the host", path)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("later"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	p.want(look, "shownlib\nshown")
}
