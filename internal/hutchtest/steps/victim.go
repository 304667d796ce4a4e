package steps

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Victim runs a test of the running test binary in another process, with more environment variables, and kills that
// process right before its nth step: see [Kill]. The test writes a byte to its standard output when it is ready, and
// begins when its standard input ends.
func Victim(t testing.TB, test string, n int, env ...string) (taken int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // see Kill
	begin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 1))
	taken, err = Kill(cmd.Process.Pid, n, begin.Close)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Process.Release() // Kill has waited for it
	return taken
}
