package hutch

import (
	"strings"
	"testing"
)

// TestInstanceTypeFigures fixes the limits of each type, because users rely on them.
func TestInstanceTypeFigures(t *testing.T) {
	want := map[string]Limits{
		"lite":       {CPU: 0.0625, Memory: 256, Disk: 2048},
		"basic":      {CPU: 0.25, Memory: 1024, Disk: 4096},
		"standard-1": {CPU: 0.5, Memory: 4096, Disk: 8192},
		"standard-2": {CPU: 1, Memory: 6144, Disk: 12288},
		"standard-3": {CPU: 2, Memory: 8192, Disk: 16384},
		"standard-4": {CPU: 4, Memory: 12288, Disk: 20480},
	}
	if len(InstanceTypes) != len(want) {
		t.Errorf("there are %d types, not %d", len(InstanceTypes), len(want))
	}
	for _, typ := range InstanceTypes {
		if err := typ.Check(); err != nil {
			t.Error(err)
		}
		if got := typ.Fill(Limits{}); got != want[typ.Name] {
			t.Errorf("%s is %+v, not %+v", typ.Name, got, want[typ.Name])
		}
	}
}

func TestInstanceTypeFill(t *testing.T) {
	typ := InstanceType{"x", 2, 100, 200}
	got := typ.Fill(Limits{Memory: 64, PIDs: 9})
	if want := (Limits{CPU: 2, Memory: 64, Disk: 200, PIDs: 9}); got != want {
		t.Errorf("%+v, not %+v: a limit that is given wins over the type", got, want)
	}
}

func TestOwnInstanceTypes(t *testing.T) {
	big, err := ParseInstanceType("big", "8/32768/65536")
	if err != nil || big != (InstanceType{"big", 8, 32768, 65536}) {
		t.Fatalf("%+v, %v", big, err)
	}
	list, err := AddInstanceTypes(InstanceTypes, []InstanceType{big, {"lite", 1, 64, 64}})
	if err != nil || len(list) != len(InstanceTypes)+1 {
		t.Fatalf("%+v, %v", list, err)
	}
	if lite, err := FindInstanceType(list, "lite"); err != nil || lite.Memory != 64 {
		t.Errorf("the own lite is %+v, %v", lite, err)
	}
	_, err = FindInstanceType(list, "huge")
	if err == nil || !strings.Contains(err.Error(), "standard-4, big, lite") {
		t.Errorf("the error does not list the known types: %v", err)
	}
	for name, text := range map[string]string{
		"a": "8", "b": "8/1", "c": "x/64/64", "d": "1/x/64", "e": "0/64/64", "f": "1/0/64", "g": "1/64/0", "h": "1/16/64", "i": "NaN/64/64",
		"A B": "1/64/64", "j": "-1/64/64", "k": "1/64/99999999999", "l": "1/64/64/64",
	} {
		if _, err := ParseInstanceType(name, text); KindOf(err) != Invalid {
			t.Errorf("%s=%s: %v, not Invalid", name, text, err)
		}
	}
}
