// Package browser is a real browser in tests: Debian's headless Chromium, controlled with the DevTools protocol through
// a pair of pipes. So no other process can control it, and it ends when the test does.
package browser

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"hutch/internal/hutchtest"
)

// patience is how long anything may take on a busy machine.
const patience = time.Minute

// Browser is one Chromium with its own profile.
type Browser struct {
	t   testing.TB
	in  *os.File // messages to the browser
	end chan struct{}

	mu      sync.Mutex
	last    int
	waiting map[int]chan answer
}

// answer is the browser's answer to a command.
type answer struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Program returns the path of Chromium: of the headless shell, which needs half the CPU time, or else of the full
// browser. If neither is installed, the test is skipped, or fails in CI.
func Program(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium-headless-shell", "chromium"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	hutchtest.Skip(t, "chromium is missing: apt-get install chromium-headless-shell")
	return ""
}

// Open starts a browser, which ends with the test. If Chromium is not installed, the test is skipped, or fails in CI.
func Open(t testing.TB) *Browser {
	t.Helper()
	program := Program(t)
	dir := hutchtest.Dir(t)
	// Chromium's own sandbox does not work for root, and is not needed because the pages are trusted.
	cmd := exec.Command(program, "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--user-data-dir="+dir,
		"--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
		"--disable-component-update", "--disable-crash-reporter", "--disable-breakpad")
	cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	theirIn, in := pipe(t)
	out, theirOut := pipe(t)
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &Browser{t: t, in: in, end: make(chan struct{}), waiting: map[int]chan answer{}}
	go b.listen(out)
	t.Cleanup(func() {
		// This command makes Chromium end its child processes and then itself.
		if err := b.call("", "Browser.close", nil, &struct{}{}); err != nil {
			t.Errorf("browser: %v", err)
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
		cmd.Wait() // the exit status does not matter
		in.Close()
		<-b.end
	})
	return b
}

func pipe(t testing.TB) (r, w *os.File) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// listen passes on answers until the browser ends. Messages end with a zero byte. Messages without an id are events,
// which are ignored.
func (b *Browser) listen(out *os.File) {
	defer close(b.end)
	defer out.Close()
	for r := bufio.NewReader(out); ; {
		msg, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var a answer
		json.Unmarshal(bytes.TrimSuffix(msg, []byte{0}), &a)
		b.mu.Lock()
		if c := b.waiting[a.ID]; c != nil {
			c <- a
			delete(b.waiting, a.ID)
		}
		b.mu.Unlock()
	}
}

// call sends a command to the browser or, if session is the session of a page, to that page.
func (b *Browser) call(session, method string, params, result any) error {
	c := make(chan answer, 1)
	b.mu.Lock()
	b.last++
	msg, err := json.Marshal(map[string]any{"id": b.last, "sessionId": session, "method": method, "params": params})
	b.waiting[b.last] = c
	if err == nil {
		_, err = b.in.Write(append(msg, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case a := <-c:
		if a.Error != nil {
			return fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		return json.Unmarshal(a.Result, result)
	case <-b.end:
		return errors.New("the browser ended")
	case <-time.After(patience):
		return fmt.Errorf("%s: no answer", method)
	}
}

type params map[string]any
