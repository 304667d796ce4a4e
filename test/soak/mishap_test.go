package soak

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"hutch"
)

// A sharedFailure affects all callers.
type sharedFailure struct {
	name string
	do   func(c *chaos, t *testing.T)
}

var serialFailures = []sharedFailure{
	{"runtime killed", (*chaos).killOne},
	{"daemon stopped for a second", (*chaos).stopDaemon},
	{"clock an hour ahead", func(c *chaos, t *testing.T) { c.wrongBy(t, time.Hour) }},
	{"burst of 50", func(c *chaos, t *testing.T) { c.burstOf(t, 50) }},
	{"clock an hour back", func(c *chaos, t *testing.T) { c.wrongBy(t, -time.Hour) }},
	{"disk full", (*chaos).noRoom},
	{"burst of 100", func(c *chaos, t *testing.T) { c.burstOf(t, 100) }},
}

// causeFailures causes one failure after another, and kills the daemon in the middle of every second one.
func (c *chaos) causeFailures(t *testing.T, end time.Time) {
	var both sync.WaitGroup
	for i := 0; time.Now().Before(end) && !t.Failed(); i++ {
		m := serialFailures[i%len(serialFailures)]
		both.Go(func() { m.do(c, t) })
		if rand.IntN(2) == 0 {
			<-time.After(rand.N(time.Second))
			c.killDaemon(t)
		}
		both.Wait()
		c.met[m.name]++
		<-time.After(*failures/2 + rand.N(*failures))
	}
}

// killDaemon kills the daemon and restarts it; on a full disk the restart can fail with an error.
func (c *chaos) killDaemon(t *testing.T) {
	if _, err := c.end(syscall.SIGKILL); err != nil {
		t.Error(err)
		return
	}
	c.kills++
	err := c.start()
	for end := time.Now().Add(outage); err != nil && time.Now().Before(end); err = c.start() {
		c.unstarted++
		<-time.After(100 * time.Millisecond)
	}
	if err != nil {
		t.Error(err)
	}
}

// stopDaemon stops the daemon for a while, as on a machine that is suspended or overcommitted.
func (c *chaos) stopDaemon(t *testing.T) {
	c.daemon.mu.Lock()
	defer c.daemon.mu.Unlock()
	c.cmd.Process.Signal(syscall.SIGSTOP)
	<-time.After(time.Second)
	c.cmd.Process.Signal(syscall.SIGCONT)
}

func (c *chaos) wrongBy(t *testing.T, by time.Duration) {
	if err := c.jump(by); err != nil {
		t.Error(err)
	}
}

// killOne kills the kernel of a gVisor sandbox, or the first process of another.
func (c *chaos) killOne(t *testing.T) {
	victims := c.sentries()
	if rand.IntN(2) == 0 || len(victims) == 0 {
		if pid := firstAbove(withEnv("SOAK_MARK=" + c.mark)); pid != 0 {
			victims = []int{pid}
		}
	}
	if len(victims) == 0 {
		return
	}
	c.mu.Lock()
	c.killed++
	c.mu.Unlock()
	syscall.Kill(victims[rand.IntN(len(victims))], syscall.SIGKILL)
}

// noRoom keeps the disk full for a second.
func (c *chaos) noRoom(t *testing.T) {
	if os.Geteuid() != 0 {
		return // see smallDisk
	}
	ballast, err := os.Create(filepath.Join(c.dir, "ballast"))
	if err != nil {
		t.Error(err)
		return
	}
	defer os.Remove(ballast.Name())
	defer ballast.Close()
	for block := make([]byte, 1<<20); err == nil; {
		_, err = ballast.Write(block)
	}
	<-time.After(time.Second)
}

// burstOf makes sandboxes all at once, and destroys them again.
func (c *chaos) burstOf(t *testing.T, n int) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			k := &caller{chaos: c, boxes: map[string]*box{}}
			b := &box{id: hutch.NewID("burst"), runtime: "native"}
			err := c.do(t.Context(), "create in a burst", func(ctx context.Context) error {
				_, err := c.client.Create(ctx, hutch.CreateRequest{ID: b.id, Runtime: b.runtime})
				return err
			})
			if err == nil {
				err = k.destroy(t.Context(), b)
			}
			if err != nil {
				t.Errorf("burst: %s", describe(err))
			}
		})
	}
	all.Wait()
}
