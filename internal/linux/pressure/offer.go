package pressure

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// offer is by how many thousandths of all memory a process seems larger than it
// is to the kernel, when that has to end one. At most are 1000.
const offer, mostOffered = 500, 1000

// Offer has the kernel end a process, or one of those that it starts from now
// on, rather than this one when there is no memory left. They can take it back
// unless this process has CAP_SYS_RESOURCE, but never be better off than it is.
func Offer(pid int) error {
	own, err := score("self")
	if err != nil {
		return err
	}
	value := strconv.Itoa(min(own+offer, mostOffered))
	if err := os.WriteFile(scoreFile(strconv.Itoa(pid)), []byte(value), 0); err != nil {
		return fmt.Errorf("offer process %d to the kernel: %w", pid, err)
	}
	return nil
}

// score is what stands in proc_pid_oom_score_adj(5).
func score(process string) (int, error) {
	text, err := os.ReadFile(scoreFile(process))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func scoreFile(process string) string { return "/proc/" + process + "/oom_score_adj" }
