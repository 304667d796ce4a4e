package agent_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hutch/internal/kernel"
	"hutch/internal/wire"
)

// An interrupt that comes after the end of its run does not end the next one. Here both are there when the interpreter
// looks for what to do next.
func TestLateInterrupt(t *testing.T) {
	t.Parallel()
	for language, code := range map[string][2]string{
		"javascript": {"process.pid", "await new Promise(r => setTimeout(r, 20)); 42"},
		"python":     {"import os; os.getpid()", "import time; time.sleep(0.02); 42"},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			c, _ := serve(t, wire.Boot{})
			k := kernelContext(t, c, "c", language)
			o := runIn(t, c, k, "c", kernel.Code{Text: code[0]}, 20*time.Second, nil)
			pid, err := strconv.Atoi(strings.Trim(o.out, "[]"))
			if err != nil {
				t.Fatal(o.out, err)
			}
			for range 10 {
				syscall.Kill(pid, syscall.SIGSTOP)
				syscall.Kill(pid, syscall.SIGINT)
				time.AfterFunc(20*time.Millisecond, func() { syscall.Kill(pid, syscall.SIGCONT) })
				if o := runIn(t, c, k, "c", kernel.Code{Text: code[1]}, 20*time.Second, nil); o.end.Code != 0 || o.out != "[42]" {
					t.Fatalf("it ended as %+v with %q, raised %+v", o.end, o.out, o.fault)
				}
			}
		})
	}
}
