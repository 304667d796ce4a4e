package hibernate

import (
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"hutch/internal/hutchtest"
)

// The example does what it says.
func TestDemo(t *testing.T) {
	t.Parallel()
	hutchtest.Program(t, "hutch")
	hutchtest.Driver(t, "gvisor", hutchtest.Dir(t)) // skips the test where the runtime does not work
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	cmd := exec.CommandContext(t.Context(), "../../examples/hibernate/demo.sh", port)
	cmd.Env = append(os.Environ(), "TMPDIR="+hutchtest.Dir(t))
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, t.Output()
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	want := regexp.MustCompile(`^the page:     hello from before
the sandbox:  hibernated, [0-9.]+M on disk
the daemon:   killed
the page:     hello from before
the variable: 42
$`)
	if !want.MatchString(out.String()) {
		t.Errorf("it printed:\n%s", &out)
	}
}
