package pressure

import "testing"

func TestSome(t *testing.T) {
	t.Parallel()
	for psi, want := range map[string]float64{
		"some avg10=12.50 avg60=1.00 avg300=0.00 total=99\nfull avg10=40.00 avg60=0 avg300=0 total=1\n": 12.5,
		"some avg10=0.00 avg60=90.00 avg300=0.00 total=99\n":                                            0,
		"": 0,
	} {
		if got := some(psi); got != want {
			t.Errorf("%q: %v, not %v", psi, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	const info = "MemTotal:  24000000 kB\nMemFree: 100 kB\nMemAvailable:  2000000 kB\n"
	if n := size(info, "MemAvailable:"); n != 2000000<<10 {
		t.Errorf("%d bytes", n)
	}
	if n := size("", "MemTotal:"); n != 0 {
		t.Errorf("%d bytes", n)
	}
}

func TestTotal(t *testing.T) {
	t.Parallel()
	if n := Total(); n < 64<<20 {
		t.Errorf("a machine with %d bytes of memory", n)
	}
}
