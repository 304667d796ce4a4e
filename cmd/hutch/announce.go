package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/daemon"
	"hutch/internal/linux/cgroup"
)

// banner is the message of a started daemon for the person at the keyboard: what to do next.
type banner struct {
	*daemon.Daemon
	fl    *serveFlags
	home  *home
	token localToken
	std   streams
}

func (s banner) write(w io.Writer) {
	if s.fl.Conversations.Only {
		fmt.Fprintf(w, "Hutch %s answers at %s\n", fullVersion(), s.BaseURL())
		return
	}
	url := s.URL()
	fmt.Fprintf(w, `Hutch %s
  console   %s   (in a browser)
  URL       %s   (of programs: MCP at /mcp, REST at /v1)
  API page  %s
  token     %s
  runtimes  %s   (the first is the default)
%s
To try it, paste this into another terminal:

%s
`, fullVersion(), s.ConsoleURL(), url, url+s.APIPage(), s.sayToken(), strings.Join(s.Runtimes(), ", "), s.caveats(), s.try(url))
	if showsTerminal(w) {
		fmt.Fprintln(w, "\n"+s.endWords())
	}
}

// caveats returns the lines about limits that have no effect here.
func (s banner) caveats() string {
	var b strings.Builder
	here := slices.ContainsFunc(s.Runtimes(), func(name string) bool { return name == "gvisor" || name == "native" })
	if _, err := cgroup.Find(); err != nil && here {
		fmt.Fprintln(&b, "  limits    nothing bounds the memory and CPU of sandboxes here: `hutch doctor` says why, and what to do")
	}
	if s.fl.previewDomain == "localhost" && !daemon.OnLoopback(s.fl.Listen) {
		fmt.Fprintln(&b, "  previews  only browsers on this machine can open them: name a domain with --preview-domain")
	}
	return b.String()
}

func (s banner) endWords() string {
	words := "Ctrl-C ends the server; its sandboxes keep running, and `hutch down` ends them."
	switch {
	case s.fl.Sandboxes.DestroyAll:
		words = "Ctrl-C ends the server and destroys its sandboxes."
	case s.fl.Sandboxes.SleepAll:
		words = "Ctrl-C ends the server and puts its sandboxes to sleep."
	}
	if !s.fl.verbose && !s.fl.quiet {
		words += " --verbose shows requests here."
	}
	return words
}

// sayToken prints a new token once, and only to a terminal: other output can end up in logs.
func (s banner) sayToken() string {
	switch secret, fresh := s.Token(); {
	case fresh && showsTerminal(s.std.out):
		return secret + "   (not shown again; it is in " + s.home.data().Token() + ")"
	case s.token.env != "":
		return "$" + s.token.env + "   (of this server's environment)"
	}
	return s.home.data().Token()
}

// try returns a command line that runs code in a sandbox of this server. It works in any folder, and uses the example's
// data if they exist.
func (s banner) try(url string) string {
	self, err := os.Executable()
	if err != nil {
		self = "hutch"
	}
	token, fresh := s.Token()
	switch {
	case s.token.env != "":
		token = fmt.Sprintf(`"${%s:?set it to the token of the server}"`, s.token.env)
	case !fresh || !showsTerminal(s.std.out):
		token = `"$(cat ` + quote(s.home.data().Token()) + `)"`
	}
	settings := fmt.Sprintf("HUTCH_URL=%s HUTCH_TOKEN=%s", url, token)
	data := filepath.Join(filepath.Dir(self), "..", "examples", "weather")
	if _, err := os.Stat(filepath.Join(data, "seattle.csv")); err != nil {
		return fmt.Sprintf("  %s %s exec -l python -c 'print(6 * 7)' demo", settings, quote(self))
	}
	return fmt.Sprintf("  export %s\n  %[2]s exec demo 'cat > seattle.csv' < %[3]s\n  %[2]s exec -l python demo %[4]s",
		settings, quote(self), quote(filepath.Join(data, "seattle.csv")), quote(filepath.Join(data, "summary.py")))
}

// quote quotes a path for a shell.
func quote(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@%", r)
	}) {
		return hutch.CommandLine(path)
	}
	return path
}
