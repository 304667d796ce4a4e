package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"hutch/internal/linux/cgroup"
)

// announce tells the person at the keyboard what to do next.
func (s *server) announce(w io.Writer) {
	if s.talk.only {
		fmt.Fprintf(w, "Hutch %s answers at %s\n", fullVersion(), s.base())
		return
	}
	url := s.url()
	names := make([]string, len(s.runtimes))
	for i, d := range s.runtimes {
		names[i] = d.Name()
	}
	fmt.Fprintf(w, `Hutch %s
  URL       %s   (MCP at /mcp, REST at /v1)
  API page  %s
  token     %s
  runtimes  %s   (the first is the default)
%s
To try it, paste this into another terminal:

%s
`, fullVersion(), url, url+s.apiPage(), s.sayToken(), strings.Join(names, ", "), s.caveats(), s.try(url))
	if showsTerminal(w) {
		fmt.Fprintln(w, "\n"+s.endWords())
	}
}

// apiPage is the path of the page about the REST API; empty without one.
func (s *server) apiPage() string {
	if s.talk.only {
		return ""
	}
	return "/v1/docs"
}

// caveats are the lines about what does not hold here.
func (s *server) caveats() string {
	var b strings.Builder
	if _, err := cgroup.Find(); err != nil {
		fmt.Fprintln(&b, "  limits    nothing bounds the memory and CPU of sandboxes here: `hutch doctor` says why, and what to do")
	}
	if s.preview.domain == "localhost" && !onLoopback(s.listen) {
		fmt.Fprintln(&b, "  previews  only browsers on this machine can open them: name a domain with --preview-domain")
	}
	return b.String()
}

func (s *server) endWords() string {
	words := "Ctrl-C ends the server; its sandboxes keep running, and `hutch down` ends them."
	if s.destroyAll {
		words = "Ctrl-C ends the server and destroys its sandboxes."
	}
	if !s.verbose && !s.quiet {
		words += " --verbose shows requests here."
	}
	return words
}

// requestLog is the log of requests: at a terminal they would drown everything
// else.
func (s *server) requestLog() *slog.Logger {
	if s.verbose || !showsTerminal(s.std.err) {
		return s.log
	}
	return slog.New(warnings{s.log.Handler()})
}

// warnings passes on warnings and errors only.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

// sayToken prints a token once, when it is new, and only to a terminal: what is
// printed elsewhere stays in logs.
func (s *server) sayToken() string {
	switch {
	case s.token.fresh && showsTerminal(s.std.out):
		return s.token.secret + "   (not shown again; it is in " + s.home.tokenPath() + ")"
	case s.token.env != "":
		return "$" + s.token.env + "   (of this server's environment)"
	}
	return s.home.tokenPath()
}

// try is a command line that runs code in a sandbox of this server, from any
// folder: on the example's data where that is at hand.
func (s *server) try(url string) string {
	self, err := os.Executable()
	if err != nil {
		self = "hutch"
	}
	token := s.token.secret
	switch {
	case s.token.env != "":
		token = fmt.Sprintf(`"${%s:?set it to the token of the server}"`, s.token.env)
	case !s.token.fresh || !showsTerminal(s.std.out):
		token = `"$(cat ` + quote(s.home.tokenPath()) + `)"`
	}
	settings := fmt.Sprintf("HUTCH_URL=%s HUTCH_TOKEN=%s", url, token)
	data := filepath.Join(filepath.Dir(self), "..", "examples", "weather")
	if _, err := os.Stat(filepath.Join(data, "seattle.csv")); err != nil {
		return fmt.Sprintf("  %s %s exec -l python -c 'print(6 * 7)' demo", settings, quote(self))
	}
	return fmt.Sprintf("  export %s\n  %[2]s exec demo 'cat > seattle.csv' < %[3]s\n  %[2]s exec -l python demo %[4]s",
		settings, quote(self), quote(filepath.Join(data, "seattle.csv")), quote(filepath.Join(data, "summary.py")))
}

// quote writes a path for a shell.
func quote(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@%", r)
	}) {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}

// family is the network to listen on: an IPv4 address means IPv4 only, though Go
// would open 0.0.0.0 for IPv6 as well.
func family(listen string) string {
	if host, _, err := net.SplitHostPort(listen); err == nil {
		if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
			return "tcp4"
		}
	}
	return "tcp"
}
