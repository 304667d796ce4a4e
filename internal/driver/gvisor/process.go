package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"hutch/internal/linux/pidfd"
)

// process identifies a process permanently, although its number can be reused.
type process struct {
	PID     int    `json:"pid"`
	Started uint64 `json:"started"` // start time, from pidfd.Started
}

// identify identifies a process that is known to be alive.
func identify(pid int) (process, error) {
	started, err := pidfd.Started(pid)
	return process{pid, started}, err
}

// end kills the process and waits until the process has ended or ctx is done.
func (p process) end(ctx context.Context) error {
	held, err := pidfd.Open(p.PID, p.Started)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer held.Close()
	if err := held.Kill(); err != nil {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	stop := context.AfterFunc(ctx, func() { held.Close() })
	defer stop()
	if err := held.Wait(); err != nil {
		return fmt.Errorf("wait for the end of process %d: %w", p.PID, errors.Join(err, context.Cause(ctx)))
	}
	return nil
}

// killNamed kills every process with arg among its arguments, until no such process is left. Listing all processes is
// not atomic: a process that ends meanwhile can have started another process that the list lacks. So two lists in a row
// must be empty.
func killNamed(ctx context.Context, arg string) error {
	for none := 0; none < 2; none++ {
		found, err := named(arg)
		if err != nil {
			return err
		}
		for _, p := range found {
			if err := p.end(ctx); err != nil {
				return err
			}
			none = -1
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// named lists the processes that have arg among their arguments.
func named(arg string) (found []process, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !bytes.Contains(text, []byte("\x00"+arg+"\x00")) {
			continue
		}
		if p, err := identify(pid); err == nil { // otherwise it has ended
			found = append(found, p)
		}
	}
	return found, nil
}

// standing describes, for the log, what each thread of an instance's processes is doing, as far as the kernel reports
// it. It is for a start that hangs.
func (p folder) standing() string {
	const most = 16 << 10
	found, err := named("--root=" + p.state())
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, proc := range found {
		dir := fmt.Sprintf("/proc/%d", proc.PID)
		args, _ := os.ReadFile(dir + "/cmdline")
		fmt.Fprintf(&b, "%d %s\n", proc.PID, lastArgs(args))
		threads, _ := filepath.Glob(dir + "/task/*")
		for _, t := range threads {
			where, _ := os.ReadFile(t + "/wchan")
			call, _ := os.ReadFile(t + "/syscall")
			state, _ := os.ReadFile(t + "/stat")
			fmt.Fprintf(&b, "  %s %.60s %.60s %s\n", filepath.Base(t), after(state, ')'), bytes.TrimSpace(call), where)
			if b.Len() > most {
				return b.String()[:most]
			}
		}
	}
	return b.String()
}

// lastArgs returns the end of a command line, where runsc has its command.
func lastArgs(cmdline []byte) string {
	args := strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
	return strings.Join(args[max(0, len(args)-4):], " ")
}

func after(text []byte, c byte) []byte { return text[bytes.LastIndexByte(text, c)+1:] }
