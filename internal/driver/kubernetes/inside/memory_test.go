package inside

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hutch/internal/driver/memguard"
)

// TestMeter: cached files do not count as memory in use, under either version of control groups. In gVisor, whose
// control groups show little, the figures of gVisor's kernel are read.
func TestMeter(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"version 1": {map[string]string{"memory/memory.stat": "cache 9\nactive_file 9\ntotal_inactive_file 100\ntotal_active_file 20\n", "memory/memory.usage_in_bytes": "1000\n"}, 880},
		"version 2": {map[string]string{"memory.stat": "anon 7\ninactive_file 100\nactive_file 20\nworkingset 1\n", "memory.current": "1000\n"}, 880},
		"gVisor":    {map[string]string{"memory/memory.usage_in_bytes": "1\n", "meminfo": "MemTotal:  9 kB\nActive:   7 kB\nActive(anon):      100 kB\nInactive(anon): 0 kB\n"}, 100<<10 + sentryOwn},
		"nothing":   {nil, sentryOwn},
	} {
		dir := t.TempDir()
		for path, text := range c.files {
			path = filepath.Join(dir, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if got := (meter{groups: folder(dir), proc: folder(dir)}).used(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestMeminfo: programs see their limit. The free memory that they see changes with the memory in use, without what the
// instance uses for itself. The length of the file never changes.
func TestMeminfo(t *testing.T) {
	dir := t.TempDir()
	const limit = 100 << 20
	if err := os.WriteFile(filepath.Join(dir, meminfoFile), []byte(meminfo(limit, limit)), 0o600); err != nil {
		t.Fatal(err)
	}
	memory, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	p := &pod{limit: limit, own: 50 << 20, meminfo: openMeminfo(int(memory.Fd()))}
	if p.meminfo == nil {
		t.Fatal("the file is not found")
	}
	defer p.meminfo.Close()
	for _, c := range []struct{ used, free int64 }{{0, 100}, {50, 100}, {80, 70}, {150, 0}, {1000, 0}, {60, 90}} {
		p.showUse(c.used << 20)
		text := folder(dir).read(meminfoFile)
		if len(text) != len(meminfo(limit, limit)) {
			t.Errorf("with %d MiB in use, the file has %d bytes", c.used, len(text))
		}
		for key, want := range map[string]int64{"MemTotal:": 100, "MemFree:": c.free, "MemAvailable:": c.free, "AnonPages:": 100 - c.free, "Active(anon):": 100 - c.free, "SwapTotal:": 0} {
			if got := field(text, key) >> 10; got != want || !strings.Contains("\n"+text, "\n"+key+" ") {
				t.Errorf("with %d MiB in use, %s is %d MiB, not %d", c.used, key, got, want)
			}
		}
	}
	(&pod{}).showUse(1) // for a container whose server sent no limit
	if openMeminfo(-1) != nil {
		t.Error("a file of no folder")
	}
}

// TestReport: a pod reports its memory at first, whenever it changes above the limit, and when it falls below the limit
// again. Otherwise it reports nothing.
func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := memguard.Limits{Soft: 100 << 20, Hard: 200 << 20}
		var used, looks atomic.Int64
		here, there := net.Pipe()
		ended := make(chan struct{})
		var said []int64
		go func() {
			var b [8]byte
			for {
				if _, err := io.ReadFull(here, b[:]); err != nil {
					return
				}
				said = append(said, int64(binary.BigEndian.Uint64(b[:])>>20))
			}
		}()
		begin := sync.OnceFunc(func() { // with the first step's memory in use
			go func() {
				defer close(ended)
				report(there, limits, func() int64 { looks.Add(1); return used.Load() })
			}()
		})
		for _, step := range []struct{ used, said int64 }{{10, 10}, {90, 0}, {99, 0}, {101, 101}, {101, 0}, {300, 300}, {250, 250}, {40, 40}, {30, 0}} {
			said = nil
			used.Store(step.used << 20)
			begin()
			time.Sleep(time.Second)
			synctest.Wait()
			if step.said == 0 && len(said) > 0 || step.said > 0 && (len(said) != 1 || said[0] != step.said) {
				t.Errorf("at %d MiB it says %v", step.used, said)
			}
		}
		looks.Store(0)
		time.Sleep(time.Minute)
		if n := looks.Load(); n > 2000 {
			t.Errorf("an idle pod looks %d times a minute", n)
		}
		here.Close()
		time.Sleep(time.Second)
		select {
		case <-ended:
		default:
			t.Error("it does not end with its stream")
		}
	})
}
