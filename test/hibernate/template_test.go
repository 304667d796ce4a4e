package hibernate

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"hutch"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
)

const ticker = `while :; do n=$((n+1)); echo $n > /workspace/.ticks; mv /workspace/.ticks /workspace/ticks; sleep 0.01; done`

// Copies of a template that were made in advance do not differ from those made on request: nothing in them has
// advanced meanwhile, and each has its own identity.
func TestTemplatesThatWait(t *testing.T) {
	t.Parallel()
	r := room{}
	r.Engine = hutchtest.Engine(t, "gvisor", func(o *engine.Options) { r.dir, o.Pool = o.Dir, engine.Pool{Max: 4, Room: 1 << 30} })
	first, err := r.Create(t.Context(), hutch.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.StartProcess(t.Context(), first.ID, hutch.ProcessRequest{Command: ticker, Name: "ticker"}); err != nil {
		t.Fatal(err)
	}
	r.code(t, first.ID, "import os, random; x = 41; random.seed(1)")
	r.ticks(t, first.ID, 1)
	snap, err := r.Snapshot(t.Context(), first.ID, hutch.SnapshotRequest{Name: "warm"})
	if err != nil {
		t.Fatal(err)
	}
	at := r.ticks(t, first.ID, 1)
	cold := r.copy(t)
	r.copy(t)
	r.ready(t, 2)
	r.ticks(t, cold, at+200) // as long as the others wait
	seen := map[string]bool{}
	for range 2 {
		id := r.copy(t)
		if n := r.ticks(t, id, 1); n > at+100 {
			t.Errorf("it has gone on from %d to %d", at, n)
		}
		if got := r.run(t, id, "hostname; echo $SANDBOX_ID"); got != id+"\n"+id {
			t.Errorf("%s takes itself for %q", id, got)
		}
		before := time.Now().Unix()
		if now, err := strconv.ParseInt(r.run(t, id, "date +%s"), 10, 64); err != nil || now < before-1 || now > time.Now().Unix()+1 {
			t.Errorf("its clock says %d, ours said %d: %v", now, before, err)
		}
		if got := r.code(t, id, "(x + 1, os.environ['SANDBOX_ID'])"); got != "(42, '"+id+"')" {
			t.Errorf("its interpreter says %s", got)
		}
		seen[r.code(t, id, "random.random()")] = true
		r.Destroy(t.Context(), id, true)
	}
	if len(seen) != 2 {
		t.Errorf("random numbers: %v", seen)
	}
	if k := r.ready(t, 2); k.Hits != 2 || k.Misses != 2 || k.Snapshot != snap.ID {
		t.Errorf("%+v", k)
	}
	if err := r.DeleteSnapshot(t.Context(), "warm"); err != nil {
		t.Fatal(err)
	}
	r.ready(t, 0)
}

// copy makes a sandbox of the template.
func (r room) copy(t *testing.T) string {
	t.Helper()
	sb, err := r.Create(t.Context(), hutch.CreateRequest{Snapshot: "warm"})
	if err != nil {
		t.Fatal(err)
	}
	return sb.ID
}

// ready waits for n ready copies, and returns their kind.
func (r room) ready(t *testing.T, n int) hutch.PoolKind {
	t.Helper()
	kinds := r.pool(t, func(p hutch.PoolState) bool { return p.Ready == n }).Kinds
	if i := slices.IndexFunc(kinds, func(k hutch.PoolKind) bool { return k.Snapshot != "" }); i >= 0 {
		return kinds[i]
	}
	return hutch.PoolKind{}
}

// ticks waits until the ticker has reached a number, and returns its present one.
func (r room) ticks(t *testing.T, id string, least int) int {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		n, _ := strconv.Atoi(r.run(t, id, "cat /workspace/ticks"))
		if n >= least {
			return n
		}
		if time.Now().After(end) {
			t.Fatalf("the ticker says %d", n)
		}
	}
}

func (r room) code(t *testing.T, id, code string) string {
	t.Helper()
	res, err := r.RunCode(t.Context(), id, hutch.RunRequest{Language: "python", Code: code}, nil)
	if err != nil || res.Error != nil {
		t.Fatalf("%s: %+v, %v", code, res.Error, err)
	}
	if len(res.Results) == 0 {
		return ""
	}
	return res.Results[0].Text()
}
