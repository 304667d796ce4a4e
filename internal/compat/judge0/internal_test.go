package judge0

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/compat"
)

// FuzzRequest: a submission that is accepted has limits that a sandbox can have, commands of one line, and an answer.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"language_id":71,"source_code":"print(1)","stdin":"x","expected_output":"1","cpu_time_limit":2.5,"memory_limit":"64000"}`,
		`{"language_id":"50","source_code":"int main;","compiler_options":"-O2; rm $(x)\n-g","command_line_arguments":"%s | a","stack_limit":0,"max_file_size":0,"max_processes_and_or_threads":0.5}`,
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, encoded bool) {
		var q request
		if compat.Decode(body, &q) != nil {
			return
		}
		l, err := q.check(encoded)
		if err != nil {
			if text, err := json.Marshal(err); err != nil || len(text) < 10 {
				t.Errorf("%s: %s, %v", body, text, err)
			}
			return
		}
		s := &submission{token: newToken(), language: l, request: q, created: time.Now(), outcome: outcome{status: accepted}}
		if err := s.limits().Check(); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		run := q.ulimits() + "exec " + command(l.run, q.Arguments)
		req := hutch.ExecRequest{Command: run, Timeout: hutch.Seconds(*q.Wall)}
		if err := req.Check(); err != nil || strings.Count(run, "\n") != 1 || q.limit() < time.Second || q.limit() > 20*time.Second {
			t.Errorf("%s: %q: %v", body, run, err)
		}
		names := []string{}
		for name := range fields {
			names = append(names, name)
		}
		for _, encoded := range []bool{true, false} {
			answer, _ := form{names, encoded}.of(s)
			if _, err := json.Marshal(answer); err != nil {
				t.Errorf("%s: %v", body, err)
			}
		}
	})
}

// TestStoreIsBounded: to make room, the oldest ended submissions are dropped, first those of the owner with the most.
func TestStoreIsBounded(t *testing.T) {
	t.Parallel()
	st := newStore(time.Hour)
	add := func(owner string, bytes int, ended bool) (*submission, error) {
		source := strings.Repeat("x", bytes)
		s := &submission{token: newToken(), request: request{Source: &source}, outcome: outcome{status: inQueue}}
		_, err := st.add(owner, s)
		if err == nil && ended {
			st.finish(owner, s, outcome{status: accepted})
		}
		return s, err
	}
	first, _ := add("ada", 6<<20, true)
	second, _ := add("ada", 6<<20, true)
	if _, err := add("ada", 6<<20, false); err != nil {
		t.Fatal(err)
	}
	has := func(owner string, s *submission) bool { return st.get(owner, s.token, func(*submission) {}) }
	if has("ada", first) || !has("ada", second) || has("eve", second) {
		t.Error("the oldest submission is still there, or more than that is gone")
	}
	if _, err := add("ada", 15<<20, false); err == nil {
		t.Error("a submission was accepted although only running ones could be removed for it")
	}
	little, _ := add("eve", 1000, true)
	for i := range 10 {
		add("owner"+string(rune('0'+i)), 15<<20, true)
	}
	if st.bytes > allBytes || !has("eve", little) {
		t.Errorf("%d bytes are held; the one with the least has lost: %v", st.bytes, !has("eve", little))
	}
	for i := range maxKept + 10 {
		if _, err := add("many", 1, true); err != nil {
			t.Fatal(i, err)
		}
	}
	if n := st.page("many", 0, 2*maxKept, func(*submission) {}); n != maxKept {
		t.Errorf("%d submissions are held", n)
	}
	st.keep = 0
	time.Sleep(time.Millisecond) // the clock
	if n := st.page("many", 0, 1, func(*submission) {}); n != 0 {
		t.Errorf("%d submissions are held after their time", n)
	}
}

// TestQueuesAreBounded: the submissions that wait, of however many owners, are bounded together, and each owner can submit
// some.
func TestQueuesAreBounded(t *testing.T) {
	t.Parallel()
	st := newStore(time.Hour)
	large, small := strings.Repeat("x", 15<<20), "x"
	add := func(owner string, source *string) error {
		_, err := st.add(owner, &submission{token: newToken(), request: request{Source: source}, outcome: outcome{status: inQueue}})
		return err
	}
	for i := range 50 {
		add(fmt.Sprint("eve", i), &large)
	}
	if st.bytes > allBytes {
		t.Errorf("%d MiB of submissions wait", st.bytes>>20)
	}
	for i := range 50 {
		if err := add(fmt.Sprint("ada", i), &small); err != nil {
			t.Fatalf("a small submission, while large ones of others wait: %v", err)
		}
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, options, want string }{
		{"cc %s main.c -lm", "", "cc main.c -lm"}, {"cc %s main.c -lm", " -O2 ", "cc -O2 main.c -lm"}, {"./a.out %s", "a; rm -rf $HOME | b `c`\nd", "./a.out a rm -rf HOME  b cd"}, {"./a.out %s", "%s", "./a.out %s"},
	} {
		if got := command(c.text, c.options); got != c.want {
			t.Errorf("%q with %q is %q, not %q", c.text, c.options, got, c.want)
		}
	}
}

// TestFieldsOnce: a field that is requested many times is written once. Writing holds a lock, for which all owners
// wait.
func TestFieldsOnce(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("GET", "/judge0/submissions?fields="+strings.Repeat("stdout,token,", 1000), nil)
	if f, err := formOf(r); err != nil || len(f.fields) != 2 {
		t.Errorf("%d fields: %v", len(f.fields), err)
	}
}
