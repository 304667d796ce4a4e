// Package bulk sends files through the whole system. They are larger than the memory that any part of the system can
// use for them.
package bulk

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"hutch"
	"hutch/client"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/server"
)

// size fits the time and memory of CI; `go test ./test/bulk -mb 5000` checks 5 GB.
var size = flag.Int64("mb", 1000, "size of the file, in MB")

// room is how much memory, in kB, each process that a file passes through can use for it.
const room = 48 << 10

func TestMain(m *testing.M) { flag.Parse(); hutchtest.Main(m) }

func TestUpAndDown(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			dir := hutchtest.Dir(t)
			hutchtest.Driver(t, runtime, filepath.Join(dir, "check")) // skips the test where the runtime does not work
			s := server.Run(t, server.Options{Data: filepath.Join(dir, "data")})
			t.Cleanup(func() { s.EndEmpty(t) })
			disk := int(*size)*1_000_000>>20 + 64
			sb, err := s.Open(t.Context(), hutch.CreateRequest{Runtime: runtime, Limits: hutch.Limits{Disk: disk, Memory: 2*disk + 128}})
			if err != nil {
				t.Fatal(err)
			}
			small := strings.NewReader("so that each has done it once")
			if _, err := sb.WriteFile(t.Context(), "small", small); err != nil {
				t.Fatal(err)
			}
			before := peaks(t, s, sb)
			sent := sha256.New()
			info, err := sb.WriteFile(t.Context(), "large", io.TeeReader(noise(*size*1_000_000), sent))
			if err != nil || info.Size != *size*1_000_000 {
				t.Fatalf("sent: %+v, %v", info, err)
			}
			if sum := firstWord(t, sb, "sha256sum large"); sum != fmt.Sprintf("%x", sent.Sum(nil)) {
				t.Errorf("inside it is another file: %s", sum)
			}
			got := sha256.New()
			if _, err := s.ReadFile(t.Context(), sb.ID, hutch.ReadRequest{Path: "large"}, got); err != nil {
				t.Fatal(err)
			}
			if string(got.Sum(nil)) != string(sent.Sum(nil)) {
				t.Error("what came back is another file")
			}
			for who, peak := range peaks(t, s, sb) {
				t.Logf("%s: %d kB at most, and %d before", who, peak, before[who])
				if peak-before[who] > room {
					t.Errorf("%s took %d kB for it", who, peak-before[who])
				}
			}
		})
	}
}

// noise returns a stream of n incompressible bytes.
func noise(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{}), n) }

func firstWord(t *testing.T, sb *client.Sandbox, command string) string {
	t.Helper()
	res, err := sb.Exec(t.Context(), hutch.ExecRequest{Command: command, Timeout: 600}, nil)
	if err != nil || !res.Success() {
		t.Fatalf("%s: %v, %s", command, err, res.Stderr)
	}
	word, _, _ := strings.Cut(strings.TrimSpace(string(res.Stdout)), " ")
	return word
}

// peaks returns the peak memory of the server and the agent, in kB. For the agent under gVisor it is the present
// memory, because gVisor reports no peaks.
func peaks(t *testing.T, s *server.Process, sb *client.Sandbox) map[string]int {
	t.Helper()
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]int{"the server": resident(t, own), "the agent": resident(t, agent(t, s, sb))}
}

// agent returns the status of the agent's process. It is read inside the sandbox if the process is visible there, and
// otherwise found among the server's descendants.
func agent(t *testing.T, s *server.Process, sb *client.Sandbox) []byte {
	t.Helper()
	res, err := sb.Run(t.Context(), "cat /proc/1/status")
	if err != nil {
		t.Fatal(err)
	}
	if res.Success() {
		return res.Stdout
	}
	for _, pid := range descendants(s.PID()) {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if strings.HasPrefix(string(status), "Name:\thutch-agent\n") {
			return status
		}
	}
	t.Fatal("there is no process of the agent")
	return nil
}

// descendants returns the processes that a process started, directly or not.
func descendants(pid int) (all []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, word := range strings.Fields(string(text)) {
			child, _ := strconv.Atoi(word)
			all = append(append(all, child), descendants(child)...)
		}
	}
	return all
}

var residents = []*regexp.Regexp{regexp.MustCompile(`VmHWM:\s*(\d+)`), regexp.MustCompile(`VmRSS:\s*(\d+)`)}

func resident(t *testing.T, status []byte) int {
	t.Helper()
	for _, r := range residents {
		if m := r.FindSubmatch(status); m != nil {
			n, _ := strconv.Atoi(string(m[1]))
			return n
		}
	}
	t.Fatalf("no resident memory in %s", status)
	return 0
}
