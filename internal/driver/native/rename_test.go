package native

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"hutch/internal/driver"
)

// An instance that was created under another name does not show the old name, and its programs have no more rights than
// those of other instances.
func TestRenamed(t *testing.T) {
	p := newInstance(t, nil)
	rights := p.rights()
	for _, name := range []string{"a-name-that-is-longer-than-the-first", "short"} {
		if err := p.Instance.(driver.Renamer).Rename(name); err != nil {
			t.Fatal(err)
		}
		p.want("uname -n; cat /etc/hostname /proc/sys/kernel/hostname", strings.Repeat("\n"+name, 3)[1:])
	}
	p.want(`python3 -c 'import socket; socket.sethostname("x")' 2>&1 | tail -1`, "PermissionError: [Errno 1] Operation not permitted")
	p.want("echo x 2>&1 > /etc/hostname | grep -c Read-only; ls /proc/self/fd | wc -l", "1\n4")
	if now := p.rights(); now != rights || !strings.Contains(now, "CapBnd:\t0000000000000000") {
		t.Errorf("the agent may\n%s\ninstead of\n%s", now, rights)
	}
}

// rights returns the capabilities of the agent, as seen from the host.
func (p *tested) rights() string {
	p.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Instance.(*instance).record.PID))
	if err != nil {
		p.Fatal(err)
	}
	_, rights, _ := strings.Cut(string(status), "\nCapInh")
	rights, _, _ = strings.Cut(rights, "\nSpeculation")
	return rights
}
