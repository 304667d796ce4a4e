package escape

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
)

// raceTime is how long an attacker and the daemon work at the same time. The first attack of this kind needed at most
// 28 runs on gVisor and 224 on native.
const raceTime = 6 * time.Second

// races are requests to the agent. During each, a program inside replaces whatever the agent creates by links to one of
// root's folders.
var races = map[string]func(f *field, ctx context.Context, id string, n int) error{
	"source": func(f *field, ctx context.Context, id string, n int) error {
		_, err := f.svc.Exec(ctx, id, hutch.ExecRequest{Language: "bash", Command: "true", Timeout: 10}, nil)
		return err
	},
	"long command line": func(f *field, ctx context.Context, id string, n int) error {
		_, err := f.svc.Exec(ctx, id, hutch.ExecRequest{Command: "true #" + strings.Repeat("x", 140<<10), Timeout: 10}, nil)
		return err
	},
	"files": func(f *field, ctx context.Context, id string, n int) error {
		name := fmt.Sprintf("/tmp/hutch-race-%d", n)
		f.svc.Mkdir(ctx, id, name, true)
		f.svc.WriteFile(ctx, id, hutch.WriteRequest{Path: name + "/file", Parents: true, Mode: 0o777}, strings.NewReader("x"))
		f.svc.Chmod(ctx, id, name, 0o777)
		f.svc.Unpack(ctx, id, hutch.UnpackRequest{Dir: name, Format: hutch.Tar}, bytes.NewReader(make([]byte, 1024)))
		f.svc.Copy(ctx, id, name, name+"-copy", true)
		f.svc.Delete(ctx, id, name, true)
		return nil
	},
	"output on disk": func(f *field, ctx context.Context, id string, n int) error {
		p, err := f.svc.StartProcess(ctx, id, hutch.ProcessRequest{Command: "head -c 1500000 /dev/zero | tr '\\0' x"})
		if err != nil {
			return err
		}
		_, err = f.svc.Wait(ctx, id, p.ID, hutch.WaitRequest{Timeout: 10})
		return err
	},
	"stdin of code": func(f *field, ctx context.Context, id string, n int) error {
		_, err := f.svc.RunCode(ctx, id, hutch.RunRequest{Language: "bash", Code: "read line; echo $line", ContextID: fmt.Sprint("race-", n%5), Stdin: strings.NewReader("line\n"), Timeout: 10}, nil)
		return err
	},
}

// No program can use what the agent creates, where programs can write, to reach root's files. That holds even for a
// program that runs while the agent works for several callers at once.
func TestRaceWithTheAgent(t *testing.T) {
	each(t, func(t *testing.T, f *field) {
		for name, call := range races {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f.race(t, call)
			})
		}
	})
}

func (f *field) race(t *testing.T, call func(f *field, ctx context.Context, id string, n int) error) {
	id := f.sandbox(t, hutch.CreateRequest{})
	before := f.sh(t, id, "stat -c '%n %u %g %a' / /home /home/*")
	f.start(t, id, hutch.ExecRequest{Language: "python", Command: program(t, "race"), Timeout: 600}, "racing")
	ctx, cancel := context.WithTimeout(t.Context(), raceTime)
	defer cancel()
	var callers sync.WaitGroup
	for caller := range 5 {
		callers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				call(f, ctx, id, caller*1_000_000+n) // an error because its files vanished is expected
			}
		})
	}
	callers.Wait()
	if after := f.sh(t, id, "stat -c '%n %u %g %a' / /home /home/*"); after != before {
		t.Errorf("what is root's has changed:\n%safter the race:\n%s", before, after)
	}
	f.checkWorks(t, id)
}
