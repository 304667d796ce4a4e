package hutch_test

import (
	"encoding/json"
	"testing"

	"hutch"
)

func TestFileMode(t *testing.T) {
	t.Parallel()
	for mode := range hutch.FileMode(0o10000) {
		b, err := json.Marshal(mode)
		var again hutch.FileMode
		if err != nil || len(b) != 6 || json.Unmarshal(b, &again) != nil || again != mode {
			t.Fatalf("%o is written as %s (%v), and read as %o", uint32(mode), b, err, uint32(again))
		}
		if got := mode.Check() == nil; got != (mode <= 0o777) {
			t.Fatalf("%v can be set: %v", mode, got)
		}
	}
	for text, want := range map[string]hutch.FileMode{"0644": 0o644, "755": 0o755, "0": 0, "4755": 0o4755} {
		if got, err := hutch.ParseFileMode(text); err != nil || got != want {
			t.Errorf("%s is read as %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "8", "0o644", "-1", "+644", "10000", "rw-r--r--", "0644 "} {
		if got, err := hutch.ParseFileMode(bad); hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("%q is read as %v, %v", bad, got, err)
		}
	}
	for _, bad := range []string{`""`, `"644"`, `"00644"`, `"0648"`, `420`} {
		var m hutch.FileMode
		if json.Unmarshal([]byte(bad), &m) == nil {
			t.Errorf("%s is taken as %v", bad, m)
		}
	}
}
