package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/hutchtest"
	"hutch/internal/linux/pressure"
)

var (
	shortageTime = flag.Duration("shortage", 15*time.Second, "how long callers come and go in too little memory")
	memory       = flag.Int("memory", 320, "MiB that the daemon and all its sandboxes have then")
)

// TestShortage makes callers do things in a machine that has too little memory for all of them: a control group around
// the daemon, like a container. Programs take more and more memory, and the kernel ends some. Every call succeeds,
// perhaps later, or its error says that memory is short. What was written is still there, even in sandboxes that sleep,
// unless the sandbox reports that it has failed. The kernel never ends the daemon.
func TestShortage(t *testing.T) {
	c := &chaos{crowd: &crowd{daemon: newDaemon(t), mark: hutch.NewID("mark"), boxes: map[string]string{}}, ops: map[string]*tally{}, met: map[string]int{}}
	c.args = []string{"--runtime", "native", "--max-sandboxes", "2000"}
	c.client, c.yields = c.daemon.client(), 2*time.Second
	c.program = within(t, c.program, *memory)
	for _, runtime := range hutchtest.Runtimes {
		hutchtest.Driver(t, runtime, hutchtest.Dir(t)) // skips the test where the runtime does not work
	}
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	kills := pressure.Kills()
	end := time.Now().Add(*shortageTime)
	var wg sync.WaitGroup
	all := make([]*caller, *callers)
	for i := range all {
		all[i] = &caller{chaos: c, boxes: map[string]*box{}, points: map[string]int{}}
		wg.Go(func() { all[i].want(t, end) })
	}
	wg.Wait()
	kills = pressure.Kills() - kills
	c.killed = c.lost // by the kernel
	c.unclaimed(t, all)
	for _, running := range []bool{true, false} { // the first sandboxes make room for the others
		for _, k := range all {
			k.giveBack(t, running)
		}
	}
	c.close(t)
	t.Logf("\n%d callers for %v in %d MiB\n%sthe kernel ended %d processes, all of %d sandboxes, and the daemon never", *callers, *shortageTime, *memory, c.tallies(), kills, c.lost)
	if c.lost > 0 && kills == 0 {
		t.Errorf("%d sandboxes have failed, and the kernel ended none", c.lost)
	}
}

// within returns a program that runs another one in a control group of that many MiB; the program sees only that
// memory, as in a container.
func within(t *testing.T, program string, mib int) string {
	t.Helper()
	const memory = "/sys/fs/cgroup/memory"
	if _, err := os.Stat(memory + "/memory.limit_in_bytes"); err != nil || os.Geteuid() != 0 {
		t.Skip("this takes root, and control groups of version 1")
	}
	group := filepath.Join(memory, hutch.NewID("shortage"))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		awaitNothing(t, "processes of the group", func() []string {
			os.Remove(filepath.Join(group, "hutch"))
			if err := os.Remove(group); err != nil {
				return []string{err.Error()}
			}
			return nil
		})
	})
	if err := os.WriteFile(group+"/memory.limit_in_bytes", []byte(strconv.Itoa(mib<<20)), 0); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "hutch")
	script := fmt.Sprintf("#!/bin/sh\necho $$ > %[1]s/cgroup.procs &&\nexec unshare -m sh -c 'mount --bind %[1]s %[2]s && exec %[3]s \"$@\"' hutch \"$@\"\n", group, memory, program)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// want does one memory-hungry thing after another.
func (k *caller) want(t *testing.T, end time.Time) {
	wants := []struct {
		name string
		do   func(ctx context.Context, b *box) error
	}{{"exec", k.ask}, {"write", k.write}, {"hoard", k.takeMemory}, {"hoard", k.takeMemory}, {"sleep", k.sleep}, {"destroy", k.destroy}}
	for time.Now().Before(end) && !t.Failed() {
		var b *box
		var err error
		w := wants[rand.IntN(len(wants))]
		if len(k.boxes) == 0 || len(k.boxes) < maxBoxes && rand.IntN(3) == 0 {
			w.name = "create"
			b, err = k.create(t.Context())
		} else {
			b = k.any()
			err = w.do(t.Context(), b)
		}
		if errors.Is(err, hutch.Exhausted) && !overLimit(err) { // and does what the error says
			w.name, err = "make room", nil
			if b = k.any(); b != nil {
				err = k.destroy(t.Context(), b)
			}
		}
		k.check(t, w.name, b, err)
	}
}

// any returns one of the caller's sandboxes, or nil if there are none.
func (k *caller) any() *box {
	for _, b := range k.boxes { // in no order
		return b
	}
	return nil
}

// giveBack checks that a caller's sandboxes are unchanged, and destroys them: the running ones, or all.
func (k *caller) giveBack(t *testing.T, running bool) {
	for _, b := range slices.Collect(maps.Values(k.boxes)) {
		if sb, err := k.client.Sandbox(t.Context(), b.id); running && err == nil && sb.Status != hutch.Running {
			continue
		}
		k.check(t, "reckon", b, k.ask(t.Context(), b))
		if err := k.destroy(t.Context(), b); err != nil {
			t.Error(describe(err))
		}
	}
}

// takeMemory makes a program take memory for a while; the kernel can end it.
func (k *caller) takeMemory(ctx context.Context, b *box) error {
	return k.do(ctx, "hoard", func(ctx context.Context) error {
		command := fmt.Sprintf("exec python3 -c 'import time; x = bytearray(%d << 20); time.sleep(1)'", 32+rand.IntN(64))
		res, err := k.client.Exec(ctx, b.id, hutch.ExecRequest{Command: command}, nil)
		switch {
		case err != nil && overLimit(err):
			return k.survivedLimit(ctx, b, err)
		case err == nil && res.ExitCode != 0 && res.ExitCode != 137 && !strings.Contains(string(res.Stderr), "MemoryError"):
			return fmt.Errorf("%s: %d %s", b.id, res.ExitCode, res.Stderr)
		}
		return err
	})
}

// survivedLimit returns nil if a sandbox that reached its memory limit continues.
func (k *caller) survivedLimit(ctx context.Context, b *box, err error) error {
	if sb, gone := k.client.Sandbox(ctx, b.id); gone == nil && sb.Status != hutch.Failed {
		return nil
	}
	return err
}
