package bridge

import (
	"archive/tar"
	"bytes"
	"io"
	"path"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/compat"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"abc234":                "abc234",
		"localhost":             hashed("localhost"),
		strings.Repeat("a", 63): strings.Repeat("a", 63),
		strings.Repeat("a", 64): hashed(strings.Repeat("a", 64)),
		"":                      "", "Abc": "", "a-b": "", "a1": "", strings.Repeat("a", 129): "",
	} {
		got, ok := SandboxID(id)
		if got != want || ok != (want != "") || ok && hutch.CheckNewID(got) != nil {
			t.Errorf("%q is %q, %v; want %q", id, got, ok, want)
		}
	}
	for session, want := range map[string]string{"main": "main", "My.Session_1": hashed("My.Session_1"), "cf-x": hashed("cf-x"), "a..b": "", "a b": "", "": ""} {
		got, ok := contextID(session)
		if got != want || ok != (want != "") || ok && hutch.CheckID(got) != nil {
			t.Errorf("the session %q is %q, %v; want %q", session, got, ok, want)
		}
	}
}

// FuzzCommand: no body makes a command that leaves the workspace or that the service would refuse.
func FuzzCommand(f *testing.F) {
	for _, seed := range []string{`{"argv":["ls","-l"],"timeout_ms":1000,"cwd":"src"}`, `{"argv":["'"],"cwd":"/workspace/../etc"}`, `{"argv":[null],"timeout_ms":1e300}`, `{"argv":["\u0000"]}`, `{"argv":["a"],"timeout_ms":-1}`} {
		f.Add([]byte(seed), "main")
	}
	f.Fuzz(func(t *testing.T, body []byte, name string) {
		var c command
		if compat.Decode(body, &c) != nil {
			return
		}
		session, _ := contextID(name)
		req, err := c.request(session, time.Hour)
		if err != nil {
			return
		}
		if req.Dir != "" && req.Dir != workspace && !strings.HasPrefix(path.Clean(req.Dir), workspace+"/") {
			t.Errorf("%s runs in %s", body, req.Dir)
		}
		if err := req.Check(); err != nil || req.Timeout <= 0 {
			t.Errorf("%s: %v, %v", body, req.Timeout, err)
		}
	})
}

// FuzzMount: no body makes a mount of what is not a volume, or over the root.
func FuzzMount(f *testing.F) {
	for _, seed := range []string{`{"binding":"data","mountPath":"/workspace/data","options":{}}`, `{"bucket":"data","mountPath":"/x","options":{"endpoint":"hutch:volumes","readOnly":true}}`, `{"binding":"../x","mountPath":"//","options":{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var m mountRequest
		if compat.Decode(body, &m) != nil {
			return
		}
		name, err := m.volume()
		if err == nil && (hutch.CheckVolume(name) != nil || path.Clean(m.MountPath) == "/" || !path.IsAbs(m.MountPath)) {
			t.Errorf("%s mounts %q at %q", body, name, m.MountPath)
		}
	})
}

// FuzzFilter: any archive of a sandbox becomes an archive without the excluded entries, or an error.
func FuzzFilter(f *testing.F) {
	var seed bytes.Buffer
	w := tar.NewWriter(&seed)
	for _, name := range []string{"a", "./skip/b", "skip"} {
		w.WriteHeader(&tar.Header{Name: name, Size: 2, Mode: 0o600})
		w.Write([]byte("ok"))
	}
	w.Close()
	f.Add(seed.Bytes())
	f.Add(seed.Bytes()[:700])
	f.Fuzz(func(t *testing.T, archive []byte) {
		var out bytes.Buffer
		err := filtered(&out, []string{"skip"}, func(w io.Writer) error { _, err := w.Write(archive); return err })
		if err != nil {
			return
		}
		for r := tar.NewReader(&out); ; {
			e, err := r.Next()
			if err == io.EOF {
				return
			}
			if err != nil || excluded(e.Name, []string{"skip"}) {
				t.Fatalf("%v: %v", e, err)
			}
		}
	})
}
