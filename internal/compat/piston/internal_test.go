package piston

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/compat"
)

func TestSelects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		selector, version string
		want              bool
	}{
		{"*", "3.11.2", true}, {"latest", "3.11.2", true}, {"3", "3.11.2", true}, {"3.x", "3.11.2", true}, {"3.11", "3.11.2", true}, {"3.11.2", "3.11.2", true}, {"v3.11.2", "3.11.2", true},
		{"3.10", "3.11.2", false}, {"4.x", "3.11.2", false}, {"3.11.2.1", "3.11.2", false},
		{"^3.9", "3.11.2", true}, {"^3.12", "3.11.2", false}, {"^2.0", "3.11.2", false},
		{"~3.11.0", "3.11.2", true}, {"~3.11.3", "3.11.2", false}, {"~3.10.0", "3.11.2", false},
		{">=3.9", "3.11.2", true}, {">=3.12", "3.11.2", false}, {">= 4", "3.11.2", false},
		{"", "3.11.2", false}, {"three", "3.11.2", false}, {"<4", "3.11.2", false}, {"3..2", "3.11.2", false}, {"99999999999", "3.11.2", false}, {"-1", "3.11.2", false},
	} {
		if got := selects(c.selector, c.version); got != c.want {
			t.Errorf("%q selects %s: %v", c.selector, c.version, got)
		}
	}
	for reported, want := range map[string]string{"": "0.0.0", "Python 3.11": "3.11.0", "go1.26.3 linux": "1.26.3", "v22": "22.0.0", "1.2.3.4": "1.2.3"} {
		if got := compat.Version(reported); got != want {
			t.Errorf("%q is %s, not %s", reported, got, want)
		}
	}
}

// FuzzJob: a job that is accepted has limits that can be kept, and files below the working folder.
func FuzzJob(f *testing.F) {
	for _, seed := range []string{
		`{"language":"python","version":"3.x","files":[{"name":"a.py","content":"print(1)"}],"stdin":"x","args":["1"],"run_timeout":3000,"compile_timeout":1,"run_memory_limit":-1}`,
		`{"language":"c","version":"*","files":[{"content":""},{"name":"a/../../b","content":"00","encoding":"hex"}],"run_memory_limit":1e300,"run_cpu_time":1e18}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var j job
		if compat.Decode(body, &j) != nil || j.check(time.Hour) != nil {
			return
		}
		if limit := j.limit(strings.ToLower(j.Language)); !(limit > 0 && limit <= 2*3600) {
			t.Errorf("%s: a limit of %v s", body, limit)
		}
		if err := (hutch.Limits{Memory: j.memory()}).Check(); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		for i := range j.Files {
			if name := j.name(i); !filepath.IsLocal(name) || hutch.CheckPath(name) != nil {
				t.Errorf("%s: the file %q", body, name)
			}
		}
		if j.main() >= len(j.Files) || !strings.HasSuffix(j.input(), "\n") {
			t.Errorf("%s: %d", body, j.main())
		}
	})
}

// FuzzSelects: no selector, and no version that a program reports, makes the choice of a version panic.
func FuzzSelects(f *testing.F) {
	f.Add("^3.1", "Python 3.11.2")
	f.Fuzz(func(t *testing.T, selector, reported string) {
		v := compat.Version(reported)
		if strings.Count(v, ".") != 2 || !selects("*", v) {
			t.Errorf("%q is the version %q", reported, v)
		}
		selects(selector, v)
	})
}

// FuzzOutput: the output of an answer is bounded and valid, however it comes.
func FuzzOutput(f *testing.F) {
	f.Add([]byte("abc\xff"), 3)
	f.Fuzz(func(t *testing.T, data []byte, times int) {
		var out output
		for i := range min(max(times, 0), 64) {
			if out.add(hutch.Output{Stream: []hutch.Stream{hutch.Stdout, hutch.Stderr}[i%2], Data: data}) != nil {
				break
			}
		}
		if out.stdout.Len() > maxOutput || out.stderr.Len() > maxOutput || out.all.Len() != out.stdout.Len()+out.stderr.Len() {
			t.Errorf("%d, %d and %d bytes", out.stdout.Len(), out.stderr.Len(), out.all.Len())
		}
	})
}
