package drivertest

import (
	"testing"

	"hutch/internal/driver"
	"hutch/internal/wire"
)

// adopts checks that an instance that was created without an owner can get one.
func adopts(t *testing.T, s *suite) {
	t.Parallel()
	p := s.create(t, "ahead")
	if r, ok := p.Instance.(driver.Renamer); ok {
		if err := r.Rename("adopted"); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.agent.Adopt(t.Context(), wire.Identity{Hostname: "adopted", Env: append(s.Root.Env, "WHOSE=ours")}); err != nil {
		t.Fatal(err)
	}
	p.want(t, "uname -n; echo $WHOSE;"+ownAddress, "adopted\nours\nadopted 127.0.0.1")
}
