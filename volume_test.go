package hutch_test

import (
	"errors"
	"strings"
	"testing"

	"hutch"
)

// A mount names one path in the sandbox, and only its last part can make it read only.
func TestVolumeMount(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]hutch.VolumeMount{
		"data:/workspace/data":    {Name: "data", Path: "/workspace/data"},
		"data:/workspace/data:ro": {Name: "data", Path: "/workspace/data", ReadOnly: true},
	} {
		if got := hutch.ParseVolumeMount(text); got != want || got.Check() != nil {
			t.Errorf("%s is %+v, %v", text, got, got.Check())
		}
	}
	for text, why := range map[string]string{
		"data": "no path", "data:x": "not absolute", "data:/": "whole file system", "data:/x/../y": "empty parts", "data:/proc/x": "system",
		"data:/x:rw": ":ro", "data:/x:ro:ro": ":ro", "Data:/x": "volume",
	} {
		if err := hutch.ParseVolumeMount(text).Check(); !errors.Is(err, hutch.Invalid) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
