package drivertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"hutch/internal/image"
	"hutch/internal/wire"
)

var isolated = map[string]func(*testing.T, *suite){
	"KeepsFilesWithoutTheAgent": keepsFilesWithoutTheAgent,
	"OrdinaryUserInside":        ordinaryUser,
	"RootIsReadOnly":            rootIsReadOnly,
	"NeighboursAreInvisible":    neighboursAreInvisible,
	"DiskLimit":                 diskLimit,
	"PIDLimit":                  pidLimit,
	"MemoryLimit":               memoryLimit,
}

func (s *suite) needLimit(t *testing.T, name string) {
	t.Helper()
	if !slices.Contains(s.Limited, name) {
		t.Skipf("the %s limit does not hold here", name)
	}
}

func ordinaryUser(t *testing.T, s *suite) {
	p := s.create(t, "user")
	p.want(t, "id -u; id -g; id -un; pwd; echo ~", fmt.Sprintf("%d\n%d\n%s\n%s\n%s", image.UID, image.GID, image.User, image.Workspace, image.Home))
	p.want(t, "hostname || cat /proc/sys/kernel/hostname", "user")
	p.want(t, ownAddress, "user 127.0.0.1")
	for _, dir := range image.Writable {
		p.want(t, "cd "+dir+" && echo x > file && mkdir dir && mv file dir/ && cat dir/file && rm -r dir", "x")
	}
	sets, noNew := "Inh|Prm|Eff|Bnd|Amb", "1"
	if can, _ := s.driver.Defaults().CanBeRoot(); can && s.Root.EROFS != "" { // then setuid programs of the image work
		sets, noNew = "Inh|Prm|Eff|Amb", "0"
	}
	p.want(t, "grep -E 'Cap("+sets+")' /proc/self/status | tr -d '\\t' | sort -u | cut -d: -f2 | sort -u", "0000000000000000")
	p.want(t, "grep NoNewPrivs /proc/self/status | cut -f2", noNew)
	if s.HighPorts {
		return
	}
	p.want(t, "python3 -c 'import socket; print(socket.create_server((\"\", 80)).getsockname()[1])'", "80")
}

// ownAddress prints the host name and its address.
const ownAddress = `python3 -c 'import socket; name = socket.gethostname(); print(name, socket.gethostbyname(name))'`

func rootIsReadOnly(t *testing.T, s *suite) {
	p := s.create(t, "ro")
	for _, path := range []string{"/usr/bin/evil", "/etc/passwd", "/bin/bash", "/evil", "/proc/sys/kernel/hostname", "/dev/evil"} {
		if out, exit := p.run(t, "echo evil >> "+path); exit.Code == 0 {
			t.Errorf("%s could be written to: %s", path, out)
		}
	}
	p.want(t, "python3 -c 'print(6*7)'", "42")
}

func neighboursAreInvisible(t *testing.T, s *suite) {
	a, b := s.create(t, "a"), s.create(t, "b")
	a.run(t, "echo secret > /workspace/secret; echo secret > /tmp/secret; echo secret > /dev/shm/secret; sleep 300 & disown")
	out, _ := b.run(t, "cat /workspace/secret /tmp/secret /dev/shm/secret 2>/dev/null; cat /proc/*/cmdline | tr '\\0' ' '; hostname")
	if strings.Contains(out, "secret\n") || strings.Contains(out, "sleep 300") {
		t.Errorf("a neighbour shows: %s", out)
	}
}

func diskLimit(t *testing.T, s *suite) {
	s.needLimit(t, "disk")
	p := s.create(t, "full")
	out, exit := p.run(t, fmt.Sprintf("head -c %dM /dev/zero > /workspace/big", 2*Limits.Disk))
	if exit.Code == 0 || !strings.Contains(out, "No space left on device") {
		t.Errorf("twice the disk limit could be written: exit code %d, %s", exit.Code, out)
	}
	p.want(t, "rm /workspace/big && echo fits > /workspace/small && cat /workspace/small", "fits")
}

func pidLimit(t *testing.T, s *suite) {
	s.needLimit(t, "pids")
	p := s.create(t, "bomb")
	out, _ := p.run(t, fmt.Sprintf("for i in $(seq %d); do sleep 300 & done 2>&1 | grep -m1 -i fork; kill -9 -1", 4*Limits.PIDs))
	if !strings.Contains(out, "fork") {
		t.Errorf("four times the pids limit could be started: %s", out)
	}
	p.want(t, "echo recovered", "recovered")
}

func memoryLimit(t *testing.T, s *suite) {
	s.needLimit(t, "memory")
	neighbour, p := s.create(t, "calm"), s.create(t, "greedy")
	// tail keeps the last line, and /dev/zero is one endless line.
	greed := wire.Start{ID: "greed", Argv: []string{"tail", "/dev/zero"}, TimeoutMS: 60_000}
	// Either the kernel kills the program, or the whole instance ends.
	if exit, err := p.agent.Run(t.Context(), greed, nil, nil); err == nil && exit.Signal != 9 && exit.Code != 1 || exit.TimedOut {
		t.Errorf("memory without end: %+v", exit)
	}
	neighbour.want(t, "echo calm", "calm")
}
