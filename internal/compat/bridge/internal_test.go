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

// FuzzCommand: whatever the body, the command stays in the workspace, and the service accepts it.
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

// FuzzMount: whatever the body, only volumes are mounted, and never over the root.
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
	skip, err := parseExcludes("skip")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed.Bytes())
	f.Add(seed.Bytes()[:700])
	f.Fuzz(func(t *testing.T, archive []byte) {
		var out bytes.Buffer
		err := filtered(&out, skip, func(w io.Writer) error { _, err := w.Write(archive); return err })
		if err != nil {
			return
		}
		for r := tar.NewReader(&out); ; {
			e, err := r.Next()
			if err == io.EOF {
				return
			}
			if err != nil || excluded(e.Name, skip) {
				t.Fatalf("%v: %v", e, err)
			}
		}
	})
}

// Patterns match as if each were tried for a path and for every folder above it.
func TestExcluded(t *testing.T) {
	for text, want := range map[string]string{
		"a":             "a a/b a/b/c",
		"a/b":           "a/b a/b/c",
		"a/b/c/d":       "",
		"*":             "a a/b a/b/c x y/b",
		"*/b":           "a/b a/b/c y/b",
		"?/?":           "a/b a/b/c y/b",
		"a[!-~]b":       "a/b a/b/c",
		"a[/]b":         "a/b a/b/c",
		`\a`:            "a a/b a/b/c",
		"[x/y]":         "x y/b",
		"[a-b][/][a-b]": "a/b a/b/c",
		"q,x,y/":        "x y/b",
	} {
		list, err := parseExcludes(text)
		if err != nil {
			t.Fatal(text, err)
		}
		var got []string
		for _, name := range []string{"a", "./a/b", "/a/b/c", "x", "y/b"} {
			if excluded(name, list) {
				got = append(got, strings.Trim(name, "./"))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q leaves out %q, not %q", text, got, want)
		}
	}
}

// A program in the sandbox chooses the paths that this server compares with a thousand patterns. A deep path costs
// little more than another path of the same length.
func TestCostOfExcludes(t *testing.T) {
	list, err := parseExcludes(strings.TrimSuffix(strings.Repeat("*a*a*a*a*a*a*a*a*a*a*a*a*a*b,", maxExcludes), ","))
	if err != nil {
		t.Fatal(err)
	}
	took := func(name string) time.Duration {
		least := time.Hour
		for range 3 {
			began := time.Now()
			excluded(name, list)
			least = min(least, time.Since(began))
		}
		return least
	}
	flat, deep := took(strings.Repeat("a", 200)), took(strings.Repeat("a/", 2000)+"a")
	if deep > 20*flat {
		t.Errorf("a deep path takes %v, and one without folders %v", deep, flat)
	}
}
