package console_test

import (
	"strings"
	"testing"

	"hutch/internal/console"
)

// FuzzCookie sends arbitrary cookies while another user has a session. None of them gives access. If another host of
// the domain adds one to a session's own cookie, the request does not act for another user.
func FuzzCookie(f *testing.F) {
	s := newSite(f, console.Options{})
	p := s.page()
	p.signIn(f, local)
	_, value, _ := strings.Cut(p.cookie, "=")
	for _, seed := range []string{
		"", "hutch_session=", "hutch_session=" + strings.Repeat("A", 43), "hutch_session=\"" + strings.Repeat("A", 43) + "\"", "__Host-hutch_session=x; hutch_session=y", ";;=;hutch_session", "hutch_session=a, hutch_session=b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, value[:40]) {
			return // the fuzzer cannot know the cookie, but it can change unused bits at its end
		}
		if w := p.request("GET", "/v1/x", "", "Cookie", line); w.Code != 401 && w.Code != 403 {
			t.Errorf("%q: %d %s", line, w.Code, w.Body)
		}
		if w := p.request("POST", "/v1/x", "", "Cookie", p.cookie+"; "+line); w.Code == 200 && w.Body.String() != "local by console" || w.Code != 200 && w.Code != 401 && w.Code != 403 {
			t.Errorf("with another session, %q: %d %s", line, w.Code, w.Body)
		}
	})
}
