package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestBounds(t *testing.T) {
	t.Parallel()
	host := t.TempDir()
	write := func(dir string, files map[string]string) {
		os.MkdirAll(filepath.Join(host, dir), 0o755)
		for name, text := range files {
			os.WriteFile(filepath.Join(host, dir, name), []byte(text), 0o644)
		}
	}
	write("memory", map[string]string{"memory.limit_in_bytes": "9223372036854771712\n", "memory.usage_in_bytes": "7000\n"})
	write("memory/docker/c", map[string]string{
		"memory.limit_in_bytes": "5000\n", "memory.usage_in_bytes": "4000\n",
		"memory.stat": "active_file 1\ntotal_active_file 300\ntotal_inactive_file 700\n",
	})
	write("unified/user", map[string]string{"memory.max": "3000\n", "memory.current": "1000\n", "memory.stat": "anon 1\nactive_file 200\ninactive_file 100\n"})
	write("unified/user/scope", map[string]string{"memory.max": "max\n", "memory.current": "1000\n"})
	write("unified/user/scope/tight", map[string]string{"memory.max": "1000\n", "memory.current": "900\n"})
	v1, v2 := line(host, "memory", "cgroup"), line(host, "unified", "cgroup2")
	own := func(group string) string { return fmt.Sprintf("4:memory:%s\n0::%s\n", group, group) }
	for _, c := range []struct {
		name, mounts, own string
		limit, free       int64
	}{
		{"version 1, unbound", v1, own("/"), 0, 0},
		{"version 1, bound", v1, own("/docker/c"), 5000, 2000},
		{"version 2, bound above", v2, own("/user/scope"), 3000, 2300},
		{"version 2, the tightest", v2, own("/user/scope/tight"), 1000, 100},
		{"both", v1 + v2, "4:memory:/docker/c\n0::/\n", 5000, 2000},
		{"no control groups", "", "", 0, 0},
	} {
		proc := t.TempDir()
		os.WriteFile(filepath.Join(proc, "mountinfo"), []byte(c.mounts), 0o644)
		os.WriteFile(filepath.Join(proc, "cgroup"), []byte(c.own), 0o644)
		if limit, free := tightest(memoryGroups(proc)); limit != c.limit || free != c.free {
			t.Errorf("%s: %d of %d are free, not %d of %d", c.name, free, limit, c.free, c.limit)
		}
	}
}
