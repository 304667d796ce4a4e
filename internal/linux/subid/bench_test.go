package subid

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkFind measures the cost for a server at its start, and for each create of a sandbox, which runs the two
// programs.
func BenchmarkFind(b *testing.B) {
	ids, err := Find()
	if err != nil || os.Geteuid() == 0 {
		b.Skip("it takes an ordinary user with subordinate ids: ", err)
	}
	b.Run("find", func(b *testing.B) {
		for b.Loop() {
			if _, err := Find(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("namespace", func(b *testing.B) {
		for b.Loop() {
			ns, err := ids.Namespace()
			if err != nil {
				b.Fatal(err)
			}
			unix.Close(ns)
		}
	})
}
