package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
)

func open(t testing.TB, opt Options) *Log {
	t.Helper()
	if opt.Dir == "" {
		opt.Dir = t.TempDir()
	}
	l, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func operation(verb string) Operation {
	return Operation{Time: time.Now(), Token: "tk-1", TokenName: "ci", Owner: "tk-1", Sandbox: "demo", Verb: verb, Target: "make test", Surface: "rest"}
}

// do records one call with its outcome.
func do(t testing.TB, l *Log, op Operation, o Outcome) {
	t.Helper()
	_, end, err := l.Begin(t.Context(), op)
	if err != nil {
		t.Fatal(err)
	}
	end(o)
}

func records(t testing.TB, l *Log, q Query) (list []Record) {
	t.Helper()
	if err := l.Query(t.Context(), q, func(r Record) error { list = append(list, r); return nil }); err != nil {
		t.Fatal(err)
	}
	return list
}

func verify(t testing.TB, dir string) Report {
	t.Helper()
	r, err := Verify(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustBeWhole(t testing.TB, dir string) Report {
	t.Helper()
	r := verify(t, dir)
	if !r.OK() {
		t.Fatalf("%+v", r.Findings)
	}
	return r
}

func TestRecord(t *testing.T) {
	t.Parallel()
	l := open(t, Options{})
	op := operation("Exec")
	do(t, l, op, Outcome{})
	do(t, l, operation("Stat"), Outcome{Err: hutch.Errorf(hutch.NotFound, "no such file")})
	minted := operation("Create")
	minted.Sandbox = ""
	do(t, l, minted, Outcome{Sandbox: "sb-1"})
	list := records(t, l, Query{})
	if len(list) != 4 || list[0].Verb != AuditStart {
		t.Fatalf("%+v", list)
	}
	run, look, create := list[1], list[2], list[3]
	if run.Result != OK || run.Began != run.Seq-1 || !run.Time.Equal(op.Time) || run.Target != "make test" || run.Duration <= 0 {
		t.Errorf("%+v", run)
	}
	if look.Result != "not_found" || look.Error != "no such file" || look.Began != 0 {
		t.Errorf("%+v", look)
	}
	if create.Sandbox != "sb-1" {
		t.Errorf("%+v", create)
	}
	if r := mustBeWhole(t, l.opt.Dir); r.Lines != 6 || r.Last != 6 {
		t.Errorf("%+v", r)
	}
}

// TestHostileWords: a record is one line of bounded length, whatever a caller sends.
func TestHostileWords(t *testing.T) {
	t.Parallel()
	l := open(t, Options{})
	for _, s := range []string{"\n{\"seq\":1}\n", "\x00\xff\xfe", strings.Repeat("\x01", 1<<20), strings.Repeat("é", 4096), `","hash":"` + strings.Repeat("0", 64) + "\"}\n"} {
		v := Operation{}
		for i := range reflect.TypeFor[Operation]().NumField() {
			if f := reflect.ValueOf(&v).Elem().Field(i); f.Kind() == reflect.String {
				f.SetString(s)
			}
		}
		do(t, l, v, Outcome{Err: errors.New(s)})
	}
	if r := mustBeWhole(t, l.opt.Dir); r.Lines != 11 {
		t.Errorf("%+v", r)
	}
	if n := len(records(t, l, Query{})); n != 6 {
		t.Errorf("%d records", n)
	}
	b, _ := os.ReadFile(filepath.Join(l.opt.Dir, l.name))
	for line := range bytes.Lines(b) {
		if len(line) > maxLine {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}

func TestChainGoesOnOverRestartsAndDays(t *testing.T) {
	t.Parallel()
	dir, clock := t.TempDir(), time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for range 5 {
		l := open(t, Options{Dir: dir, now: func() time.Time { return clock }})
		do(t, l, operation("Exec"), Outcome{})
		clock = clock.Add(day)
		do(t, l, operation("Exec"), Outcome{})
		clock = clock.Add(-2 * day) // the clock is set back: the files keep their order
		do(t, l, operation("Exec"), Outcome{})
		clock = clock.Add(2 * day)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	all, _ := files(dir)
	if r := mustBeWhole(t, dir); len(all) != 6 || r.Lines != 35 || len(r.Notes) != 0 {
		t.Errorf("%d files, %+v", len(all), r)
	}
}

// TestVerifyFinds: Verify notices every change to a line or to its position.
func TestVerifyFinds(t *testing.T) {
	t.Parallel()
	l := open(t, Options{})
	for i := range 10 {
		op := operation("Stat")
		op.Target = fmt.Sprint(i)
		do(t, l, op, Outcome{})
	}
	name := filepath.Join(l.opt.Dir, l.name)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	whole, _ := os.ReadFile(name)
	lines := bytes.SplitAfter(whole, []byte("\n"))
	lines = lines[:len(lines)-1]
	for what, edit := range map[string]func([][]byte) [][]byte{
		"removed":       func(l [][]byte) [][]byte { return append(l[:4], l[5:]...) },
		"first removed": func(l [][]byte) [][]byte { return l[1:] },
		"last removed":  func(l [][]byte) [][]byte { return l[:len(l)-1] },
		"all removed":   func([][]byte) [][]byte { return nil },
		"swapped":       func(l [][]byte) [][]byte { l[4], l[5] = l[5], l[4]; return l },
		"doubled":       func(l [][]byte) [][]byte { return append(l[:5], l[4:]...) },
		"junk":          func(l [][]byte) [][]byte { l[4] = []byte("junk\n"); return l },
		"changed and hashed again": func(l [][]byte) [][]byte {
			c := bytes.Replace(l[4], []byte("demo"), []byte("dame"), 1)
			d := digestOf(c[:len(c)-tail])
			copy(c[len(c)-tail+len(beforeHash):], d[:])
			l[4] = c
			return l
		},
	} {
		cut := make([][]byte, len(lines))
		for i := range lines {
			cut[i] = bytes.Clone(lines[i])
		}
		os.WriteFile(name, bytes.Join(edit(cut), nil), 0o600)
		if r := verify(t, l.opt.Dir); r.OK() {
			t.Errorf("%s: not found", what)
		}
	}
	at := len(lines[0]) + len(lines[1])
	for i := at; i < at+len(lines[2]); i++ { // every bit that matters
		b := bytes.Clone(whole)
		b[i] ^= 1
		os.WriteFile(name, b, 0o600)
		if r := verify(t, l.opt.Dir); r.OK() {
			t.Fatalf("byte %d (%q): not found", i-at, whole[i])
		}
	}
	os.WriteFile(name, whole, 0o600)
	mustBeWhole(t, l.opt.Dir)
}

// TestWrittenAgain: with a hash that was kept elsewhere, Verify notices that a log was replaced by a new, consistent
// one.
func TestWrittenAgain(t *testing.T) {
	t.Parallel()
	one, two := open(t, Options{}), open(t, Options{})
	for _, l := range []*Log{one, two} {
		do(t, l, operation("Stat"), Outcome{})
	}
	r := mustBeWhole(t, one.opt.Dir)
	head := fmt.Sprintf("%d:%s", r.Last, r.Head)
	do(t, one, operation("Stat"), Outcome{})
	do(t, two, operation("Stat"), Outcome{})
	if r, err := Verify(t.Context(), one.opt.Dir, head); err != nil || !r.OK() {
		t.Errorf("%+v %v", r, err)
	}
	if r, err := Verify(t.Context(), two.opt.Dir, head); err != nil || r.OK() {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := Verify(t.Context(), two.opt.Dir, "7"); err == nil {
		t.Error("7 is a head")
	}
}

func TestTornEnd(t *testing.T) {
	t.Parallel()
	for what, junk := range map[string]string{"half a line": `{"seq":3,"prev":"00`, "zeros": strings.Repeat("\x00", 4096), "a line of no log": "{}\n", "long": strings.Repeat("x", 3*maxLine)} {
		t.Run(what, func(t *testing.T) {
			l := open(t, Options{})
			do(t, l, operation("Stat"), Outcome{})
			l.Close()
			name := filepath.Join(l.opt.Dir, l.name)
			f, _ := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
			f.WriteString(junk)
			f.Close()
			again := open(t, Options{Dir: l.opt.Dir})
			do(t, again, operation("Stat"), Outcome{})
			r := mustBeWhole(t, l.opt.Dir)
			if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], fmt.Sprintf("%s.torn-2 %d bytes", l.name, len(junk))) {
				t.Errorf("%q", r.Notes)
			}
			if b, err := os.ReadFile(name + ".torn-2"); err != nil || string(b) != junk {
				t.Errorf("%q %v", b, err)
			}
		})
	}
}

// TestCutEnd: lines that were known to be on disk are removed, and Verify reports them as missing.
func TestCutEnd(t *testing.T) {
	t.Parallel()
	l := open(t, Options{})
	for range 5 {
		do(t, l, operation("Stat"), Outcome{})
	}
	l.Close()
	name := filepath.Join(l.opt.Dir, l.name)
	b, _ := os.ReadFile(name)
	lines := bytes.SplitAfter(b, []byte("\n"))
	os.WriteFile(name, bytes.Join(lines[:3], nil), 0o600)
	again := open(t, Options{Dir: l.opt.Dir})
	again.Close()
	r := verify(t, l.opt.Dir)
	if r.OK() || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "lines 4 to 6") {
		t.Errorf("%+v", r)
	}
}

// TestExpire: after old files were removed, the remaining lines still form a chain.
func TestExpire(t *testing.T) {
	t.Parallel()
	clock := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	l := open(t, Options{Keep: 3 * day, now: func() time.Time { return clock }})
	for range 10 {
		do(t, l, operation("Exec"), Outcome{})
		clock = clock.Add(day)
		if err := l.expire(); err != nil {
			t.Fatal(err)
		}
		mustBeWhole(t, l.opt.Dir)
	}
	all, _ := files(l.opt.Dir)
	if len(all) != 4 {
		t.Errorf("%q", all)
	}
	os.Remove(all[0])
	if r := verify(t, l.opt.Dir); r.OK() {
		t.Error("a file that someone removed is not missed")
	}
}

func TestQuery(t *testing.T) {
	t.Parallel()
	clock := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	l := open(t, Options{now: func() time.Time { return clock }})
	for i := range 4 {
		op := operation([]string{"Exec", "Stat"}[i%2])
		op.Time, op.Sandbox, op.Token = clock, fmt.Sprintf("sb-%d", i), fmt.Sprintf("tk-%d", i)
		var err error
		if i == 3 {
			err = hutch.Errorf(hutch.Denied, "no")
		}
		do(t, l, op, Outcome{Err: err})
		clock = clock.Add(day)
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		q    Query
		want int
	}{
		{Query{Since: start.Add(day)}, 3}, {Query{Since: start, Until: start.Add(2 * day)}, 3 /* with the start */},
		{Query{Verb: "exec"}, 2}, {Query{Token: "tk-1"}, 1}, {Query{Token: "ci"}, 4}, {Query{Sandbox: "sb-2"}, 1}, {Query{Result: "denied"}, 1},
		{Query{Owner: "tk-1"}, 4}, {Query{Owner: "x"}, 0}, {Query{Sandbox: "sb-2", Verb: "Stat"}, 0}, {Query{Limit: 2}, 2}, {Query{Running: true}, 0},
	} {
		if got := records(t, l, c.q); len(got) != c.want {
			t.Errorf("%+v: %d records, want %d", c.q, len(got), c.want)
		}
	}
	var seen []int64
	for q := (Query{Limit: 1}); ; {
		list := records(t, l, q)
		if len(list) == 0 {
			break
		}
		q.After = list[0].Seq
		seen = append(seen, q.After)
	}
	if fmt.Sprint(seen) != "[1 3 4 6 7]" {
		t.Errorf("by cursor: %v", seen)
	}
	_, end, _ := l.Begin(t.Context(), operation("Exec"))
	if got := records(t, l, Query{Running: true}); len(got) != 1 || got[0].Verb != "Exec" {
		t.Errorf("%+v", got)
	}
	end(Outcome{})
}

func TestFollow(t *testing.T) {
	t.Parallel()
	l := open(t, Options{})
	got := make(chan Record)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- l.Follow(ctx, Query{Verb: "Stat"}, func(r Record) error { got <- r; return nil })
	}()
	for i := range 50 {
		op := operation("Stat")
		op.Target = fmt.Sprint(i)
		do(t, l, op, Outcome{})
		if r := <-got; r.Target != op.Target {
			t.Fatalf("%+v", r)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestFullDisk: an operation that changes something is refused while its record cannot be written. Lost lines are
// recorded once there is space again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	l := open(t, Options{})
	file, full := l.file, must(os.OpenFile("/dev/full", os.O_RDWR, 0))(t)
	l.file = full
	_, _, err := l.Begin(t.Context(), operation("Exec"))
	if hutch.KindOf(err) != hutch.Unavailable || l.Ready() == nil {
		t.Errorf("%v, ready %v", err, l.Ready())
	}
	do(t, l, operation("Stat"), Outcome{})
	do(t, l, operation("Destroy"), Outcome{})
	l.file = file
	full.Close()
	do(t, l, operation("Exec"), Outcome{})
	r := mustBeWhole(t, l.opt.Dir)
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "AuditLost 2 lines") || l.Ready() != nil {
		t.Errorf("%+v, ready %v", r, l.Ready())
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestParallel: 64 callers write, others read, and the log is synced every second.
func TestParallel(t *testing.T) {
	t.Parallel()
	l := open(t, Options{})
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 20 {
				do(t, l, operation("Exec"), Outcome{})
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			if err := l.sync(); err != nil {
				t.Error(err)
			}
			if r := verify(t, l.opt.Dir); !r.OK() {
				t.Errorf("%+v", r.Findings)
			}
		})
	}
	wg.Wait()
	if r := mustBeWhole(t, l.opt.Dir); r.Lines != 1+64*20*2 {
		t.Errorf("%+v", r)
	}
	if got := records(t, l, Query{Verb: "Exec"}); len(got) != 64*20 {
		t.Errorf("%d ends", len(got))
	}
}

// TestKilled runs a log in another process, which prints the answers that its clients would have received, and kills that process.
func TestKilled(t *testing.T) {
	if dir := os.Getenv("AUDIT_TEST_DIR"); dir != "" {
		writeForEver(t, dir)
	}
	t.Parallel()
	dir := t.TempDir()
	told := 0
	for round := range 5 {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
		c.Env = append(os.Environ(), "AUDIT_TEST_DIR="+dir)
		out := must(c.StdoutPipe())(t)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1000*(round+1))
		n, _ := out.Read(buf)
		for range 20 {
			m, _ := out.Read(buf)
			n += m
		}
		c.Process.Kill()
		for { // read what the process printed before it died
			m, err := out.Read(buf)
			n += m
			if err != nil {
				break
			}
		}
		c.Wait()
		told += n
		l := open(t, Options{Dir: dir})
		if got := len(records(t, l, Query{Verb: "Stat"})); got < told {
			t.Errorf("%d records of %d operations", got, told)
		}
		if got := records(t, l, Query{Result: Interrupted}); len(got) != 3*(round+1) || got[0].Verb != "Exec" {
			t.Errorf("%d interrupted operations", len(got))
		}
		l.Close()
		mustBeWhole(t, dir)
	}
}

// writeForEver prints a byte for each recorded operation, while three other operations are in progress.
func writeForEver(t *testing.T, dir string) {
	l, err := Open(context.Background(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	go l.Run(context.Background())
	for range 3 {
		l.Begin(context.Background(), operation("Exec"))
	}
	for {
		do(t, l, operation("Stat"), Outcome{})
		os.Stdout.WriteString(".")
	}
}

func TestObserversUnwind(t *testing.T) {
	t.Parallel()
	var told []string
	note := func(name string, err error) Observer {
		return observer(func(ctx context.Context, op Operation) (context.Context, func(Outcome), error) {
			return ctx, func(o Outcome) { told = append(told, fmt.Sprint(name, o.Err)) }, err
		})
	}
	full := errors.New("full")
	if _, end, err := (Observers{note("a", nil), note("b", nil), note("c", full)}).Begin(t.Context(), Operation{}); err != full || end != nil {
		t.Error(err)
	}
	if fmt.Sprint(told) != "[bfull afull]" {
		t.Error(told)
	}
}

type observer func(context.Context, Operation) (context.Context, func(Outcome), error)

func (f observer) Begin(ctx context.Context, op Operation) (context.Context, func(Outcome), error) {
	return f(ctx, op)
}

// If the disk has no space for a line, a call that changes something is refused. A call that only looks, or that frees
// space, is made.
func TestVerbsOnAFullDisk(t *testing.T) {
	t.Parallel()
	l := open(t, Options{})
	l.Close() // no more lines can be written
	for name, refused := range map[string]bool{
		"Exec": true, "unheard of": true, "WriteFile": true,
		"Stat": false, "Snapshots": false, "Backups": false,
		"Destroy": false, "DeleteSnapshot": false, "DeleteBackup": false,
	} {
		_, _, err := l.Begin(t.Context(), operation(name))
		if (err != nil) != refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParseLink(f *testing.F) {
	c, _ := content(End, 1, operation("Exec"))
	line, _ := appendLine(nil, 2, origin, c)
	f.Add(line)
	f.Add([]byte(beforeSeq + "1" + beforePrev))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, intact, err := parseLink(b); err == nil && intact && bytes.Count(b, []byte("\n")) == 1 && l.seq < 1 && b[len(beforeSeq)] != '-' && l.seq != 0 {
			t.Errorf("%+v of %q", l, b)
		}
	})
}

func BenchmarkLog(b *testing.B) {
	for _, verb := range []string{"Stat", "Exec"} {
		for _, writers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", verb, writers), func(b *testing.B) {
				l, op := open(b, Options{}), operation(verb)
				b.SetParallelism(max(1, writers/2))
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						do(b, l, op, Outcome{})
					}
				})
				b.ReportMetric(float64(l.last.seq)/b.Elapsed().Seconds(), "lines/s")
			})
		}
	}
}
