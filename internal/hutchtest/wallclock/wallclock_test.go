package wallclock

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

const env = "HUTCH_TEST_WALLCLOCK"

// TestJump asks this test's own program for the time.
func TestJump(t *testing.T) {
	if os.Getenv(env) != "" {
		printTimes()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestJump$")
	cmd.Env = append(os.Environ(), env+"=1")
	ask, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	clock, err := Start(cmd)
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer ask.Close()
	defer clock.Close()
	lines := bufio.NewReader(said)
	for _, jump := range []time.Duration{0, time.Hour, -time.Hour, 0} {
		if err := clock.Set(jump); err != nil {
			t.Fatal(err)
		}
		var wall, since int64
		fmt.Fprintln(ask)
		if _, err := fmt.Fscanln(lines, &wall, &since); err != nil {
			t.Fatal(err)
		}
		if off := time.Until(time.Unix(wall, 0)) - jump; off.Abs() > 5*time.Second {
			t.Errorf("after a jump of %v it is off by %v", jump, off)
		}
		if since < 0 || since > 60 {
			t.Errorf("after a jump of %v, it has run for %d s", jump, since)
		}
	}
}

// printTimes prints the time, and how long it has run by the monotonic clock.
func printTimes() {
	began := time.Now()
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		now := time.Now()
		fmt.Println(now.Unix(), int(now.Sub(began).Seconds()))
	}
}
