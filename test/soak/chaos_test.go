package soak

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hutch"
	"hutch/internal/hutchtest"
)

var (
	chaosTime = flag.Duration("chaos", 25*time.Second, "how long callers come and go")
	callers   = flag.Int("callers", 6, "callers")
	failures  = flag.Duration("mishaps", 2*time.Second, "time between two mishaps")
)

// TestChaos lets callers do everything that can be done with sandboxes, on both runtimes, while one failure follows
// another: see sharedFailure. Every call succeeds in the end, or fails with an error that says what to do. Confirmed writes
// are in every sandbox, copy and snapshot. In the end no sandbox is missing or duplicated, and nothing is left. A
// summary is printed.
func TestChaos(t *testing.T) {
	c := &chaos{crowd: &crowd{daemon: newDaemon(t), mark: hutch.NewID("mark"), boxes: map[string]string{}}, ops: map[string]*tally{}, met: map[string]int{}}
	c.args = []string{"--runtime", "native", "--max-sandboxes", "2000"}
	c.client = c.daemon.client()
	for _, runtime := range hutchtest.Runtimes {
		hutchtest.Driver(t, runtime, hutchtest.Dir(t)) // skips the test where the runtime does not work
	}
	c.smallDisk(t, "1g")
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	c.run(t, time.Now().Add(*chaosTime))
	c.close(t)
	t.Log("\n" + c.summary())
	if !t.Failed() {
		t.Log("no sandbox was lost, none was there twice, no answer was wrong, and nothing was left on the host")
	}
}

// run lets everything happen, and then checks the result.
func (c *chaos) run(t *testing.T, end time.Time) {
	t.Helper()
	var wg sync.WaitGroup
	all := make([]*caller, *callers)
	for i := range all {
		all[i] = &caller{chaos: c, boxes: map[string]*box{}, points: map[string]int{}}
		wg.Go(func() { all[i].work(t, end) })
	}
	wg.Go(func() { c.causeFailures(t, end) })
	wg.Wait()
	for _, k := range all {
		k.checkAll(t)
	}
	c.unclaimed(t, all)
	for _, k := range all {
		k.leave(t)
	}
}

// chaos is the state of one test.
type chaos struct {
	*crowd

	mu     sync.Mutex
	ops    map[string]*tally
	met    map[string]int // failures, by name
	killed int            // sandboxes whose processes were killed
	lost   int            // sandboxes that were found to have failed
	broken int            // forks whose result is unknown
	orphan int            // sandboxes that those forks left

	unstarted int // starts of the daemon that failed

	yields time.Duration // how long to retry a call that is refused because a resource is short; 0 means for ever
}

// tally counts the outcomes of calls of one kind.
type tally struct {
	took    []time.Duration
	again   int
	refused map[hutch.Kind]int // answers before the final one
}

// do makes a call, and repeats it while the answer says that repeating can help.
func (c *chaos) do(ctx context.Context, op string, call func(context.Context) error) error {
	began := time.Now()
	refused := map[hutch.Kind]int{}
	ctx, cancel := context.WithTimeoutCause(ctx, outage, errors.New("stuck"))
	defer cancel()
	var err error
	for {
		err = call(ctx)
		kind := hutch.KindOf(err)
		if err == nil || kind != hutch.Unavailable && kind != hutch.Exhausted || overLimit(err) || ctx.Err() != nil {
			break
		}
		refused[kind]++
		if kind == hutch.Exhausted && c.yields > 0 && time.Since(began) > c.yields {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.ops[op]
	if t == nil {
		t = &tally{refused: map[hutch.Kind]int{}}
		c.ops[op] = t
	}
	t.took = append(t.took, time.Since(began))
	for k, n := range refused {
		t.again += n
		t.refused[k] += n
	}
	if err != nil {
		t.refused[hutch.KindOf(err)]++
	}
	return err
}

// overLimit reports whether the sandbox itself was ended at its memory limit. Its files may be lost, so the call is not
// repeated.
func overLimit(err error) bool { return hutch.AsError(err).Data["limit"] == "memory" }

// unclaimed destroys the copies of forks whose results were lost, and checks that everything else belongs to a
// caller.
func (c *chaos) unclaimed(t *testing.T, all []*caller) {
	list, err := c.client.Sandboxes(t.Context(), hutch.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	known, there := map[string]bool{}, map[string]bool{}
	for _, k := range all {
		for id := range k.boxes {
			known[id] = true
		}
	}
	for _, sb := range list {
		if there[sb.ID] {
			t.Errorf("%s is there twice", sb.ID)
		}
		there[sb.ID] = true
		if known[sb.ID] {
			continue
		}
		if c.orphan++; strings.HasPrefix(sb.ID, "chaos") || strings.HasPrefix(sb.ID, "burst") || c.orphan > 2*c.broken {
			t.Errorf("%s is there, and should not be", sb.ID)
		}
		if _, err := c.client.Destroy(t.Context(), sb.ID, true); err != nil {
			t.Error(describe(err))
		}
	}
	for id := range known {
		if !there[id] {
			t.Errorf("%s is gone", id)
		}
	}
	if c.lost > c.killed {
		t.Errorf("%d sandboxes have failed, and %d were killed", c.lost, c.killed)
	}
}

// close ends the daemon, and checks that it leaves nothing.
func (c *chaos) close(t *testing.T) {
	if text, err := c.end(syscall.SIGTERM); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	awaitNothing(t, "left on the host", func() []string {
		left := append(c.leftovers(c.mark), c.instances()...)
		for _, folder := range []string{"snapshots", "memory", "files"} {
			found, _ := filepath.Glob(filepath.Join(c.dir, "server", folder, "*"))
			hidden, _ := filepath.Glob(filepath.Join(c.dir, "server", folder, ".*"))
			left = append(append(left, found...), hidden...)
		}
		return left
	})
}

// summary returns the report.
func (c *chaos) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d callers for %v\n%s", *callers, *chaosTime, c.tallies())
	fmt.Fprintf(&b, "%-28s %4d times, and could not start %d times\n", "daemon killed", c.kills, c.unstarted)
	for _, m := range serialFailures {
		fmt.Fprintf(&b, "%-28s %4d times\n", m.name, c.met[m.name])
	}
	fmt.Fprintf(&b, "sandboxes that failed: %d, of %d whose processes were killed; copies of broken forks that nobody had heard of: %d\n", c.lost, c.killed, c.orphan)
	return b.String()
}

// tallies returns the outcomes of calls, by their kind.
func (c *chaos) tallies() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-20s %7s %9s %9s %9s %9s %7s  %s\n", "operation", "calls", "p50", "p95", "p99", "longest", "again", "refused before")
	calls := 0
	for _, op := range slices.Sorted(maps.Keys(c.ops)) {
		t := c.ops[op]
		calls += len(t.took)
		slices.Sort(t.took)
		at := func(q float64) time.Duration {
			return t.took[int(q*float64(len(t.took)-1))].Round(100 * time.Microsecond)
		}
		fmt.Fprintf(&b, "%-20s %7d %9v %9v %9v %9v %7d  %s\n", op, len(t.took), at(0.5), at(0.95), at(0.99), at(1), t.again, kinds(t.refused))
	}
	fmt.Fprintf(&b, "%d calls\n", calls)
	return b.String()
}

func kinds(n map[hutch.Kind]int) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(n)) {
		list = append(list, fmt.Sprintf("%s %d", k, n[k]))
	}
	return cmp.Or(strings.Join(list, ", "), "-")
}
