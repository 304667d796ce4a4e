package inside

import (
	"bytes"
	"testing"

	"hutch/internal/linux/seccomp"
	"hutch/internal/wire"
)

// Replacing the pass in a filter gives the same filter as making it with the new pass.
func TestRenewPass(t *testing.T) {
	t.Parallel()
	for name, filter := range map[string]func(seccomp.Pass) ([]byte, error){"a user": seccomp.Ancestry, "any user": seccomp.AncestryApart} {
		old := seccomp.NewPass()
		text, err := filter(old)
		if err != nil {
			t.Fatal(err)
		}
		boot := wire.Boot{Pass: old, Filter: bytes.Clone(text)}
		if err := RenewPass(&boot); err != nil {
			t.Fatal(name, err)
		}
		want, err := filter(boot.Pass)
		if err != nil {
			t.Fatal(err)
		}
		if boot.Pass == old || bytes.Equal(text, boot.Filter) || !bytes.Equal(want, boot.Filter) {
			t.Errorf("%s: the filter is not that of the pass %v", name, boot.Pass)
		}
	}
	if err := RenewPass(&wire.Boot{Filter: make([]byte, 64)}); err == nil {
		t.Error("a filter without a pass is taken")
	}
}
