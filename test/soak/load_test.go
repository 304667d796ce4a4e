package soak

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"hutch"
)

// A load is work in one sandbox, repeated until the time is up. An error means that something was lost.
var loads = []struct {
	name string
	run  func(ctx context.Context, w *worker) error
}{
	{"exec", execs},
	{"session", session},
	{"context", pythonContext},
	{"logs", logs},
	{"terminal", terminal},
	{"files", writes},
	{"watch", watch},
	{"churn", churn},
}

// worker does one load in one sandbox.
type worker struct {
	hutch.Service
	sandbox string
	runtime string
	mark    string // in the environment of everything that the worker starts
	state   map[string]int
}

func (w *worker) env() map[string]string { return map[string]string{"SOAK_MARK": w.mark} }

// outage is how long the daemon can be away, and the longest time that anything can take.
const outage = 2 * time.Minute

// try makes a call, and repeats it until the daemon is there. It returns how many attempts may have failed.
func try(ctx context.Context, call func(context.Context) error) (broken int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, outage, errors.New("stuck"))
	defer cancel()
	for ; ; broken++ {
		if err = call(ctx); !errors.Is(err, hutch.Unavailable) {
			return broken, err
		}
		select {
		case <-ctx.Done():
			return broken, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// digits returns what `seq 1 n` prints.
func digits(n int) []byte {
	var b []byte
	for i := range n {
		b = append(strconv.AppendInt(b, int64(i+1), 10), '\n')
	}
	return b
}

var million = digits(200_000) // 1.3 MB

// execs runs a command whose every byte is known.
func execs(ctx context.Context, w *worker) error {
	n := 1 + rand.IntN(100_000)
	want := digits(n)
	_, err := try(ctx, func(ctx context.Context) error {
		var got bytes.Buffer
		r, err := w.Exec(ctx, w.sandbox, hutch.ExecRequest{Command: fmt.Sprintf("cat >&2; seq 1 %d; exit 3", n), Stdin: strings.NewReader("input"), Env: w.env()}, func(o hutch.Output) error {
			if o.Stream == hutch.Stdout {
				got.Write(o.Data)
			}
			return nil
		})
		if err == nil && (r.ExitCode != 3 || string(r.Stderr) != "input" || !bytes.Equal(got.Bytes(), want)) {
			return fmt.Errorf("exit code %d, stderr %q, %d bytes of %d", r.ExitCode, r.Stderr, got.Len(), len(want))
		}
		return err
	})
	return err
}

func session(ctx context.Context, w *worker) error {
	return w.count(ctx, "soak-bash", "bash", `echo $((++n))`)
}

func pythonContext(ctx context.Context, w *worker) error {
	return w.count(ctx, "soak-python", "python", "n = globals().get('n', 0) + 1; print(n)")
}

// count adds one in a context that keeps its state. A call that was cut off may have counted or not. An interrupted
// call can at worst end the interpreter, which then starts again.
func (w *worker) count(ctx context.Context, id, language, code string) error {
	var got int
	broken, err := try(ctx, func(ctx context.Context) error {
		r, err := w.RunCode(ctx, w.sandbox, hutch.RunRequest{ContextID: id, Language: language, Code: code, Env: w.env()}, nil)
		if err != nil {
			return err
		}
		got, err = strconv.Atoi(strings.TrimSpace(string(r.Stdout)))
		if err != nil {
			return fmt.Errorf("%q, %q: %w", r.Stdout, r.Stderr, err)
		}
		return nil
	})
	last := w.state[id]
	w.state[id] = got
	if err == nil && (got <= last || got > last+1+broken) && (broken == 0 || got > 1+broken) {
		return fmt.Errorf("counted %d after %d, with %d calls that broke", got, last, broken)
	}
	return err
}

// start starts a process of a new name, once.
func (w *worker) start(ctx context.Context, req hutch.ProcessRequest) (p hutch.Process, err error) {
	req.Name, req.Env = hutch.NewID("soak"), w.env()
	_, err = try(ctx, func(ctx context.Context) error {
		list, err := w.Processes(ctx, w.sandbox)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(list, func(p hutch.Process) bool { return p.Name == req.Name }); i >= 0 {
			p = list[i]
			return nil
		}
		p, err = w.StartProcess(ctx, w.sandbox, req)
		return err
	})
	return p, err
}

// reader follows a process, disconnects at any time, and continues.
type reader struct {
	w       *worker
	process string
	cursor  int64
	slow    <-chan struct{} // if not nil, the first piece blocks until it is closed
	sum     hash.Hash
}

var errLeft = errors.New("left")

func (r *reader) read(ctx context.Context) error {
	for {
		_, err := try(ctx, func(ctx context.Context) error {
			stay := int64(rand.IntN(1 << 20))
			_, err := r.w.Logs(ctx, hutch.LogsRequest{SandboxID: r.w.sandbox, ProcessID: r.process, Cursor: r.cursor, Follow: true}, func(o hutch.Output) error {
				if o.Lost != 0 || o.Cursor-int64(len(o.Data)) != r.cursor {
					return fmt.Errorf("%d bytes lost at %d", o.Lost, r.cursor)
				}
				r.sum.Write(o.Data)
				r.cursor = o.Cursor
				if r.slow != nil {
					<-r.slow
					r.slow = nil
				}
				if stay -= int64(len(o.Data)); stay < 0 {
					return errLeft
				}
				return nil
			})
			return err
		})
		if !errors.Is(err, errLeft) {
			return err
		}
	}
}

// logs follows a process that prints 1.3 MB. One reader comes and goes, and another one hangs until the process has
// ended. Both get every byte.
func logs(ctx context.Context, w *worker) error {
	p, err := w.start(ctx, hutch.ProcessRequest{Command: "seq 1 100000; sleep 0.$((RANDOM % 9)); seq 100001 200000"})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	hung := make(chan error, 1)
	slow := &reader{w: w, process: p.ID, sum: sha256.New(), slow: ended}
	go func() { hung <- slow.read(ctx) }()
	quick := &reader{w: w, process: p.ID, sum: sha256.New()}
	err = quick.read(ctx)
	close(ended)
	if err = errors.Join(err, <-hung); err != nil {
		return err
	}
	want := sha256.Sum256(million)
	for name, r := range map[string]*reader{"quick": quick, "slow": slow} {
		if got := r.sum.Sum(nil); !bytes.Equal(got, want[:]) || r.cursor != int64(len(million)) {
			return fmt.Errorf("the %s reader got %d bytes of %d, or others", name, r.cursor, len(million))
		}
	}
	_, err = try(ctx, func(ctx context.Context) error {
		p, err := w.Process(ctx, w.sandbox, p.ID)
		if err == nil && (p.Status != hutch.ProcessExited || p.ExitCode == nil) {
			return fmt.Errorf("ended as %+v", p)
		}
		return err
	})
	return err
}

// terminal types numbers to an echo. No input is lost; input at the moment when the daemon died can arrive twice.
func terminal(ctx context.Context, w *worker) error {
	p, err := w.start(ctx, hutch.ProcessRequest{Command: "stty -echo -opost; echo ready; exec cat", Terminal: &hutch.Size{Columns: 80, Rows: 24}})
	if err != nil {
		return err
	}
	wait := func(text string) error {
		_, err := try(ctx, func(ctx context.Context) error {
			r, err := w.Wait(ctx, w.sandbox, p.ID, hutch.WaitRequest{Text: text, Timeout: 60})
			if err == nil && !r.Met {
				return fmt.Errorf("%q did not come: %+v", text, r)
			}
			return err
		})
		return err
	}
	if err := wait("ready"); err != nil {
		return err
	}
	broken := 0
	for i := range 20 {
		n, err := try(ctx, func(ctx context.Context) error {
			return w.Input(ctx, w.sandbox, p.ID, strings.NewReader(fmt.Sprintf("line %d.\n", i)), false)
		})
		if broken += n; err != nil {
			return fmt.Errorf("input: %w", err)
		}
	}
	if err := wait("line 19."); err != nil {
		return err
	}
	if _, err := try(ctx, func(ctx context.Context) error { return w.Signal(ctx, w.sandbox, p.ID, 9) }); err != nil {
		return err
	}
	var out strings.Builder
	var cursor int64
	if _, err := try(ctx, func(ctx context.Context) error {
		_, err := w.Logs(ctx, hutch.LogsRequest{SandboxID: w.sandbox, ProcessID: p.ID, Cursor: cursor, Follow: true}, func(o hutch.Output) error {
			cursor = o.Cursor
			out.Write(o.Data)
			return nil
		})
		return err
	}); err != nil {
		return err
	}
	var want strings.Builder
	want.WriteString("ready\n")
	for i := range 20 {
		fmt.Fprintf(&want, "line %d.\n", i)
	}
	if got := slices.Compact(strings.SplitAfter(out.String(), "\n")); strings.Join(got, "") != want.String() {
		return fmt.Errorf("after %d calls that broke, the terminal printed %q", broken, out.String())
	}
	return nil
}

// writes replaces a file, which has either the old or the new content at any time.
func writes(ctx context.Context, w *worker) error {
	const path = "/workspace/soak"
	n := w.state[path] + 1
	w.state[path] = n
	content := bytes.Repeat(fmt.Appendf(nil, "version %09d\n", n), 1+rand.IntN(20_000))
	_, err := try(ctx, func(ctx context.Context) error {
		_, err := w.WriteFile(ctx, w.sandbox, hutch.WriteRequest{Path: path}, bytes.NewReader(content))
		if err != nil && n > 1 {
			return cmp.Or(w.whole(ctx, path), err)
		}
		return err
	})
	if err != nil {
		return err
	}
	_, err = try(ctx, func(ctx context.Context) error {
		var got bytes.Buffer
		err := w.read(ctx, path, &got)
		if err == nil && !bytes.Equal(got.Bytes(), content) {
			return fmt.Errorf("read %d bytes of version %d, which has %d", got.Len(), n, len(content))
		}
		return err
	})
	return err
}

// read reads a file that does not change. If the answer breaks off, as if the file became shorter, the connection is
// broken.
func (w *worker) read(ctx context.Context, path string, to io.Writer) error {
	_, err := w.ReadFile(ctx, w.sandbox, hutch.ReadRequest{Path: path}, to)
	if errors.Is(err, hutch.Conflict) {
		return hutch.Errorf(hutch.Unavailable, "%v", err)
	}
	return err
}

// whole checks that a file is all of one version.
func (w *worker) whole(ctx context.Context, path string) error {
	var got bytes.Buffer
	if err := w.read(ctx, path, &got); err != nil {
		return err
	}
	line, _, _ := bytes.Cut(got.Bytes(), []byte("\n"))
	if size := len(line) + 1; got.Len()%size != 0 || !bytes.Equal(got.Bytes(), bytes.Repeat(append(line, '\n'), got.Len()/size)) {
		return fmt.Errorf("a file of %d bytes has parts of two versions", got.Len())
	}
	return nil
}

// watch sees every new file. A watch ends with the daemon; then the next one begins.
func watch(ctx context.Context, w *worker) error {
	dir := "/workspace/" + hutch.NewID("watch")
	if _, err := try(ctx, func(ctx context.Context) error { return w.Mkdir(ctx, w.sandbox, dir, true) }); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, outage, errors.New("stuck"))
	defer cancel()
	made := make(chan error, 1)
	seen := map[string]bool{}
	err := w.Watch(ctx, w.sandbox, hutch.WatchRequest{Path: dir}, func(e hutch.FileEvent) error {
		switch e.Type {
		case hutch.WatchReady:
			go func() {
				_, err := w.Exec(ctx, w.sandbox, hutch.ExecRequest{Command: "cd " + dir + "; touch {1..50}", Env: w.env()}, nil)
				made <- err
			}()
		case hutch.FileCreated:
			seen[e.Path] = true
		case hutch.Overflow:
			return io.EOF
		}
		if len(seen) == 50 {
			return io.EOF
		}
		return nil
	})
	if errors.Is(err, hutch.Unavailable) {
		return nil
	}
	if err != io.EOF {
		return fmt.Errorf("%d of 50 files seen: %w", len(seen), err)
	}
	if err := <-made; err != nil && !errors.Is(err, hutch.Unavailable) {
		return err
	}
	_, err = try(ctx, func(ctx context.Context) error {
		if err := w.Delete(ctx, w.sandbox, dir, true); !errors.Is(err, hutch.NotFound) { // an earlier call did it
			return err
		}
		return nil
	})
	return err
}

// churn makes a sandbox, uses it and destroys it.
func churn(ctx context.Context, w *worker) error {
	id := hutch.NewID("soak")
	_, err := try(ctx, func(ctx context.Context) error {
		if _, err := w.Create(ctx, hutch.CreateRequest{ID: id, Runtime: w.runtime}); err != nil {
			return fmt.Errorf("create: %w", err)
		}
		r, err := w.Exec(ctx, id, hutch.ExecRequest{Command: "echo here", Env: w.env()}, nil)
		if err == nil && string(r.Stdout) != "here\n" {
			return fmt.Errorf("exit code %d, %q", r.ExitCode, r.Stdout)
		}
		return err
	})
	_, derr := try(context.WithoutCancel(ctx), func(ctx context.Context) error {
		_, err := w.Destroy(ctx, id, true)
		return err
	})
	return errors.Join(err, derr)
}
