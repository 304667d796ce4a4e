package pressure

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// offer is the amount, in thousandths of all memory, by which a process appears larger when the kernel chooses one to
// kill. mostOffered is the kernel's maximum.
const offer, mostOffered = 500, 1000

// Offer makes the kernel prefer to kill a process, and its later children, instead of this process when memory runs
// out. They can undo this unless this process has CAP_SYS_RESOURCE, but can never get a better score than this process.
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

// score returns the value in proc_pid_oom_score_adj(5).
func score(process string) (int, error) {
	text, err := os.ReadFile(scoreFile(process))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func scoreFile(process string) string { return "/proc/" + process + "/oom_score_adj" }
