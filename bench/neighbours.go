package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"hutch"
)

// attacks are programs that use shared resources of sandboxes, each as much as its limits allow.
var attacks = []struct{ name, command string }{
	{"a fork bomb at its limit of processes", script(`import os
while True:
    try: os.fork()
    except OSError: pass`)},
	{"a spinner on each CPU", `for i in $(seq "$(nproc)"); do while :; do :; done & done; wait`},
	{"a writer of files, with fsync", `while dd if=/dev/zero of=/workspace/big bs=1M count=100 conv=fsync 2>/dev/null; do :; done`},
	{"full buffers of sockets", script(`import socket
while True:
    keep = []
    try:
        while len(keep) < 200:
            pair = socket.socketpair()
            keep.append(pair)
            pair[0].setblocking(False)
            while True:
                try: pair[0].send(b"x" * 65536)
                except BlockingIOError: break
    except OSError: pass`)},
	{"a flood of packets", script(`import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    try: s.sendto(b"x" * 512, ("192.0.2.1", 9))
    except OSError: pass`)},
	{"a flood of output", "yes"},
	{"new processes without end", "while :; do /bin/true; done"},
	{"memory, taken to three quarters of its limit and given back", script(`import mmap
size = 384 << 20
while True:
    m = mmap.mmap(-1, size)
    for at in range(0, size, 4096): m[at] = 1
    m.close()`)},
	{"many small files, made and removed", script(`import os
while True:
    for i in range(2000): open("/workspace/small-%d" % i, "w").close()
    for i in range(2000): os.remove("/workspace/small-%d" % i)`)},
	{"connections and names that the rules refuse", script(`import socket, threading
def ask():
    while True:
        try: socket.create_connection(("192.0.2.1", 80), 1).close()
        except OSError: pass
        try: socket.getaddrinfo("name.example", 80)
        except OSError: pass
for _ in range(16): threading.Thread(target=ask).start()`)},
}

func script(code string) string { return "exec python3 -c '" + code + "'" }

// neighbours measures a sandbox over REST, in each round alone and then next to an attack from another sandbox. No rule
// lets the packets of an attack out, so they end in the server.
func (l *lab) neighbours(ctx context.Context) (table, error) {
	t := newTable("", "alone, p50", "p99", "beside, p50", "p99", "× p99 alone")
	var bareAlone, bareBeside series
	for range l.rounds {
		if err := l.besideSpinners(ctx, &bareAlone, &bareBeside); err != nil {
			return t, fmt.Errorf("the baseline: %w", err)
		}
	}
	t.neighbour(bareFork+", no sandbox: a spinner on each CPU", bareAlone, bareBeside)
	for _, f := range l.runtimes {
		for _, attack := range attacks {
			var alone, beside series
			for range l.rounds {
				if err := l.round(ctx, f, attack.command, &alone, &beside); err != nil {
					return t, fmt.Errorf("%s, %s: %w", f.runtime, attack.name, err)
				}
			}
			t.neighbour(f.runtime+": "+attack.name, alone, beside)
		}
	}
	t.note("Each is of one caller, exec of /bin/true over REST in a sandbox beside that of the attack. Both have the limits of every sandbox. The first row is the same without Hutch: programs of the host beside others.")
	return t, nil
}

func (t *table) neighbour(name string, alone, beside series) {
	t.row(name, number(alone.at(0.5)), number(alone.at(0.99)), number(beside.at(0.5)), number(beside.at(0.99)), ratio(beside.at(0.99), alone.at(0.99)))
}

// besideSpinners measures one round of programs of the host, alone and beside a spinner on each CPU.
func (l *lab) besideSpinners(ctx context.Context, alone, beside *series) error {
	if err := l.addRound(ctx, fork, alone); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	var spinners []*exec.Cmd
	defer func() {
		end()
		for _, s := range spinners {
			s.Wait() // returns an error, because end has killed it
		}
	}()
	for range runtime.NumCPU() {
		s := exec.CommandContext(ctx, "/bin/sh", "-c", "while :; do :; done")
		if err := s.Start(); err != nil {
			return err
		}
		spinners = append(spinners, s)
	}
	return l.addRound(ctx, fork, beside)
}

// addRound measures calls of one caller, after a pause in which the machine becomes calm, and adds them to a series.
func (l *lab) addRound(ctx context.Context, s subject, to *series) error {
	time.Sleep(l.calm)
	got, err := interleave(ctx, 1, l.calls, []subject{s})
	if err == nil {
		*to = append(*to, got[0]...)
	}
	return err
}

// errEnded is the error for an attack that ended before the calls that were measured beside it.
var errEnded = errors.New("the attack has ended")

// round measures one round. It repeats the round if the attack ended, because a sandbox over its memory limit restarts.
func (l *lab) round(ctx context.Context, f *figures, command string, alone, beside *series) (err error) {
	for range 3 {
		var a, b series
		if err = l.attacked(ctx, f, command, &a, &b); err == nil {
			*alone, *beside = append(*alone, a...), append(*beside, b...)
		}
		if !errors.Is(err, errEnded) {
			break
		}
	}
	return err
}

// attacked measures calls alone, and beside an attack.
func (l *lab) attacked(ctx context.Context, f *figures, command string, alone, beside *series) (err error) {
	svc := l.server.rest
	victim := subject{"exec", func(ctx context.Context, _ int) error { return runIn(ctx, svc, f.box(0), program) }}
	if err := l.addRound(ctx, victim, alone); err != nil {
		return err
	}
	attacker, err := svc.Create(ctx, hutch.CreateRequest{Runtime: f.runtime})
	if err != nil {
		return err
	}
	defer func() {
		if _, end := svc.Destroy(context.WithoutCancel(ctx), attacker.ID, true); err == nil {
			err = end
		}
	}()
	p, err := svc.StartProcess(ctx, attacker.ID, hutch.ProcessRequest{Command: command, RestartPolicy: hutch.RestartAlways})
	if err != nil {
		return err
	}
	if err := l.addRound(ctx, victim, beside); err != nil {
		return err
	}
	p, err = svc.Process(ctx, attacker.ID, p.ID)
	switch {
	case errors.Is(err, hutch.NotFound):
		return fmt.Errorf("%w: %w", errEnded, err)
	case err == nil && !p.Status.Live():
		return fmt.Errorf("%w: it is %s", errEnded, p.Status)
	}
	return err
}
