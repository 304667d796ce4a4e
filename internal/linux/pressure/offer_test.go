package pressure

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// Offer affects a process and its children, but not this process.
func TestOffer(t *testing.T) {
	t.Parallel()
	own, err := score("self")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "read go; cat /proc/self/oom_score_adj")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := Offer(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	in.Write([]byte("go\n"))
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if got, want := strings.TrimSpace(out.String()), strconv.Itoa(min(own+offer, mostOffered)); got != want {
		t.Errorf("it is offered by %q, not %s", got, want)
	}
	if now, err := score("self"); now != own || err != nil {
		t.Errorf("this process has %d, not %d: %v", now, own, err)
	}
}
