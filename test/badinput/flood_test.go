package badinput

import (
	"strings"
	"testing"
	"time"

	"hutch"
)

// floods are background processes that print more than anyone wants.
var floods = map[string]string{
	"lines":        "yes",
	"no line feed": "yes | tr -d '\\n'",
	"zeros":        "cat /dev/zero",
	"both streams in turn": `python3 -c 'import os
while True: os.write(1, b"x"); os.write(2, b"y")'`,
	"a full disk": "(head -c 1G /dev/zero > /workspace/big) 2>/dev/null; yes",
}

// While a program floods its log, the log can be read to an end, waits end in time, and the process can be killed.
func TestFloods(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		for name, command := range floods {
			t.Run(name, func(t *testing.T) {
				id := b.sandbox(t, hutch.CreateRequest{Limits: hutch.Limits{Disk: 64}})
				p, err := b.StartProcess(t.Context(), id, hutch.ProcessRequest{Command: command})
				if err != nil {
					t.Fatal(err)
				}
				leave := b.watch(t)
				defer leave()
				r, err := b.Wait(t.Context(), id, p.ID, hutch.WaitRequest{Pattern: "never", Timeout: 3})
				if err != nil || !r.TimedOut {
					t.Errorf("a wait: %+v, %v", r, err)
				}
				b.read(t, id, p.ID)
				if err := b.Signal(t.Context(), id, p.ID, 9); err != nil {
					t.Error(err)
				}
				if r, err := b.Wait(t.Context(), id, p.ID, hutch.WaitRequest{}); err != nil || !r.Met {
					t.Errorf("the end: %+v, %v", r, err)
				}
				if _, err := b.Exec(t.Context(), id, hutch.ExecRequest{Command: "rm -f /workspace/big"}, nil); err != nil {
					t.Error(err)
				}
				b.checkWorks(t, id)
			})
		}
	})
}

// read reads the log so far with a slow reader.
func (b *bed) read(t *testing.T, id, process string) {
	t.Helper()
	began := time.Now()
	cursor, size := int64(1), int64(0)
	end, err := b.Logs(t.Context(), hutch.LogsRequest{SandboxID: id, ProcessID: process, Cursor: 1}, func(o hutch.Output) error {
		if begin := o.Cursor - int64(len(o.Data)); begin != cursor+o.Lost {
			t.Errorf("%d bytes are said to be lost between %d and %d", o.Lost, cursor, begin)
		}
		if cursor, size = o.Cursor, size+int64(len(o.Data)); len(o.Data) > 1000 {
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	if err != nil || end != cursor || size == 0 || size > 32<<20 {
		t.Errorf("read %d bytes up to %d of %d: %v", size, cursor, end, err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("reading took %v", took)
	}
}

// No program in the sandbox can find or open the log's file on disk.
func TestLogsAreForNobodyInside(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		id := b.sandbox(t, hutch.CreateRequest{})
		p, err := b.StartProcess(t.Context(), id, hutch.ProcessRequest{Command: "head -c 3M /dev/zero | tr '\\0' s; echo; exec sleep 1000"})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := b.Wait(t.Context(), id, p.ID, hutch.WaitRequest{Pattern: "s$"}); err != nil || !r.Met {
			t.Fatalf("%+v, %v", r, err)
		}
		r, err := b.Exec(t.Context(), id, hutch.ExecRequest{Command: `
			ls -A /tmp
			for fd in /proc/1/fd/*; do head -c 10 "$fd" 2>/dev/null < /dev/null; done
			grep -rls ssssssssss /tmp /workspace /home /dev/shm /proc/1/root/tmp`}, nil)
		if err != nil || strings.TrimSpace(string(r.Stdout)) != "" {
			t.Errorf("found: %q, %v", r.Stdout, err)
		}
	})
}
